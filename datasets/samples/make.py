#!/usr/bin/env python3
"""make.py FOLDER: writes project-made files in the forms of the official ones, so that everything runs offline.

The build runs it. The result does not depend on the machine.
"""

import sys

import make_bfcl_memory
import make_bfcl_multi_turn
import make_helmet
import make_instructions
import make_livecodebench
import make_long_contexts
import make_longbench
import make_longmemeval
import make_longproc
import make_nolima
import make_others
import make_zero_scrolls

make_longbench.main(sys.argv[1])
make_others.main(sys.argv[1])
make_bfcl_memory.main()
make_bfcl_multi_turn.main()
make_instructions.ifeval()
make_livecodebench.main()
make_long_contexts.main()
make_nolima.main()
make_zero_scrolls.main()
make_helmet.main()
make_longproc.main()
make_longmemeval.main()
