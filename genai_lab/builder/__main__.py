"""`python -m genai_lab.builder`."""

import sys

try:
    from genai_lab.builder.cli import main

    code = main()
except KeyboardInterrupt:  # while modules were still being imported
    code = 130
sys.exit(code)
