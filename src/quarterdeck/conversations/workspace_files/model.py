"""The files of a session's workspace: request and response bodies."""
