"""One module per kind of file, each with `read(source, *, options) -> Dataset`, and what they need to read safely."""
