"""One file per command. A command module has `main(argv: list[str]) -> int` and imports what it needs itself."""
