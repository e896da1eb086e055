"""A model package: one folder with several builds ("variants") of a model, of which one is chosen by its provider.

Receives the package's folder and a provider; returns the folder of the variant, which is an ordinary model folder. It
reads manifest.json only. Source: onnxruntime-genai's documentation of model packages. Variants' compatibility strings
are for providers to score, so two variants of one provider cannot be told apart here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from genai_lab.config.json_values import Place, parse_object, read_bounded, shorten
from genai_lab.config.model_folder import FILE_NAME
from genai_lab.config.providers import normalize_provider
from genai_lab.errors import ModelFolderError

MANIFEST: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 2**20
SHARED: Final = "sha256:"


def is_package(folder: Path) -> bool:
    """Whether a folder is a package and no model folder that happens to have a manifest.json."""
    return os.path.isfile(folder / MANIFEST) and not os.path.lexists(folder / FILE_NAME)


def variant_folder(package: Path, provider: str) -> Path:
    """The folder of the variant for `provider`, in any of its spellings; "" takes the only provider there is.

    Raises:
        ModelFolderError: no package, a wrong manifest, or not exactly one such variant; says which there are.
    """
    if not is_package(package):
        raise ModelFolderError(
            f"{str(package)!r} is not a model package, which has {MANIFEST} and no {FILE_NAME}. Use Config(path) for a "
            "model folder"
        )
    top = Place(str(package / MANIFEST))
    variants = _variants(parse_object(read_bounded(package / MANIFEST, MAX_MANIFEST_BYTES), top.source), top)
    declared = {name: normalize_provider(str(entry.get("ep", ""))) for name, entry in variants.items()}
    wanted = normalize_provider(provider) if provider else _only(set(declared.values()), top)
    fitting = [name for name, found in declared.items() if found == wanted]
    if len(fitting) != 1:
        there = ", ".join(f"{name} ({found or 'no provider'})" for name, found in declared.items()) or "none"
        raise ModelFolderError(
            f"{top.source}: {len(fitting)} variants are for {wanted!r}, exactly one is needed; there are: {there}. "
            "Give the variant's own folder to Config"
        )
    return _inside(package, variants[fitting[0]].get("variant_directory", fitting[0]), top)


def shared_asset(package: Path, uri: str) -> Path:
    """The folder that `sha256:<hex>` or `sha256:<hex>/<tail>` means."""
    digest, _, tail = uri.removeprefix(SHARED).partition("/")
    return _inside(package, f"shared_assets/sha256-{digest}/{tail}".rstrip("/"), Place(uri))


def _variants(manifest: dict[str, Any], top: Place) -> dict[str, dict[str, Any]]:
    components = manifest.get("components")
    if not isinstance(components, dict) or len(components) != 1:
        raise top.key("components").error(components, "an object with exactly one component")
    ((name, component),) = components.items()
    place = top.key("components").key(name)
    variants = component.get("variants") if isinstance(component, dict) else None
    if not isinstance(variants, dict) or not all(isinstance(entry, dict) for entry in variants.values()):
        raise place.key("variants").error(variants, "an object of variants, each an object")
    return variants


def _only(providers: set[str], top: Place) -> str:
    if len(providers - {""}) != 1:
        names = ", ".join(sorted(providers - {""})) or "none"
        raise ModelFolderError(
            f"{top.source}: the variants declare {names}; say which provider you want: "
            "Config.from_package_ep(path, 'cpu')"
        )
    return (providers - {""}).pop()


def _inside(package: Path, relative: object, top: Place) -> Path:
    """A folder below the package; never one outside it."""
    path = Path(str(relative))
    if not isinstance(relative, str) or path.is_absolute() or ".." in path.parts:
        raise ModelFolderError(
            f"{top.source}: {shorten(str(relative))!r} is no path inside the package; a relative path without '..' is "
            "allowed"
        )
    return package / path
