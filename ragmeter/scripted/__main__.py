"""`python -m ragmeter.scripted`: the scripted LLM as a server on this machine."""

import sys

from ragmeter.scripted import main

sys.exit(main())
