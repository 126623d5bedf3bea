"""/mcp: the workspace of a caller as an MCP server. Its tools are calls of our own API with the caller's credential."""
