"""python -m kvarena: the command `kvarena`."""

from .program import main

main()
