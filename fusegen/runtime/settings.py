"""The settings of a folder of modules, those of [tool.fusegen] in the project's pyproject.toml."""

NAMESPACE = "fusegen"  # the first word of the namespaces of operators
POLICY = "auto"  # of modules under torch.compile
