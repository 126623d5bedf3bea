"""The files of a session's workspace over HTTP."""
