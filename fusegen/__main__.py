"""``python -m fusegen``."""

from fusegen.cli import main

main()
