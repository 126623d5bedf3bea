"""Connections to addresses that callers name (SSRF protection). Every such connection goes through this package."""
