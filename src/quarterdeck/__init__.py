"""Quarterdeck: a self-hosted agent workspace service."""
