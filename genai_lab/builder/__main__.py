"""`python -m genai_lab.builder`."""

import sys

from genai_lab.builder.cli import main

sys.exit(main())
