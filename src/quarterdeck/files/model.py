"""Uploaded files: request and response bodies."""
