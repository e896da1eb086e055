#!/bin/sh
# Makes the project's own Python environment ready: sh tools/setup_env.sh lab|dev
# Receives $PYTHON (optional: the interpreter to use) and $VENV (default .venv). Leaves genai_lab installed editable in it.
# Says nothing and takes a blink when nothing has changed since the last time.
set -eu

kind=${1:?"usage: sh tools/setup_env.sh lab|dev"}
venv=${VENV:-.venv}
candidates=${PYTHON:-"python3 python3.13 python3.12 python3.11 python3.14"}
[ "$kind" = dev ] && what='.[dev]' || what='.'

# new enough, and by running it: a pyenv shim answers to `command -v` for versions that it does not have
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
can_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

find_python() {
    found="" no_venv=""
    for name in $candidates; do
        command -v "$name" >/dev/null 2>&1 || continue
        found="$found
    $(command -v "$name"): $("$name" --version 2>&1 | head -n 1)"
        new_enough "$name" || continue
        if can_venv "$name"; then echo "$name"; return; fi
        no_venv=$name
    done
    if [ -n "$no_venv" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        version=$("$no_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        { apt-get update -qq && apt-get install -y -qq "python$version-venv"; } >&2
        if can_venv "$no_venv"; then echo "$no_venv"; return; fi
    fi
    if [ -n "$no_venv" ]; then
        echo "genai_lab: $no_venv cannot make virtual environments. On Debian or Ubuntu: apt-get install python3-venv" >&2
    else
        echo "genai_lab needs Python 3.11 or newer, and none was found. Looked for: $candidates. Found:${found:- nothing}" >&2
        echo "Install one, or name it: make ... PYTHON=/path/to/python3.12" >&2
    fi
    exit 1
}

usable() { [ -x "$venv/bin/python" ] && new_enough "$venv/bin/python"; }
# the folder is part of it: a moved clone needs its editable install again
fingerprint() { { pwd -P; "$venv/bin/python" -V; echo "$what"; cat pyproject.toml genai_lab/_version.py "$0"; } | cksum; }

usable && [ "$(cat "$venv/.ready-$kind" 2>/dev/null)" = "$(fingerprint)" ] && exit 0

if ! usable; then
    if [ -e "$venv" ] && [ ! -e "$venv/pyvenv.cfg" ]; then
        echo "genai_lab: $venv exists and is no Python environment. Move it away, or name another: make ... VENV=.env" >&2
        exit 1
    fi
    python=$(find_python)
    "$python" -m venv --clear "$venv"
fi
echo "Setting up $venv with $("$venv/bin/python" -V) (the first time: a few minutes, up to 1 GB) ..."
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-warn-script-location -e "$what" || {
    echo "genai_lab: the packages could not be installed (see above). With no network, point pip at a local index: PIP_INDEX_URL, PIP_FIND_LINKS" >&2
    exit 1
}
fingerprint >"$venv/.ready-$kind"
