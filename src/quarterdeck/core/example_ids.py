"""Ids, times and a user for the examples in the OpenAPI document. All features share them, so the examples are
consistent."""

from datetime import UTC, datetime
from uuid import UUID

from quarterdeck.core.actors import ActorBody

WORKSPACE = UUID("0192f0c1-2a00-7c3e-9d4b-3f1a5c7e9b01")
SESSION = UUID("0192f0c4-77d8-7a10-8e52-6b0d4f8a1c02")
SKILL = UUID("0192f0c9-10e4-7f6b-a3c1-90e27d5b4f03")
API_KEY = UUID("0192f0c2-5b90-7d21-b6f8-1c4e8a2d7f04")
USER = UUID("0192f0c0-9e11-7b44-8a07-5d2c6f3e8b05")
RUN = UUID("0192f0d3-8c5e-7e02-9f71-2a6b4d8c0e06")
WEBHOOK = UUID("0192f0d5-40b2-7c19-b2e6-7d3f5a9c1e07")
DELIVERY = UUID("0192f0d8-6a27-7908-8c4d-1e5b3f7a9d08")
FILE = UUID("0192f0db-7e14-7a63-9b58-2f6d4c8e0a10")
ACTION = UUID("0192f0da-3b7c-7d45-a9e0-4c8f2b6d1a09")
AGENT = UUID("0192f0dd-1c36-7b80-a1f9-6d2e8c4a0b12")
CREDENTIAL = UUID("0192f0dd-2c91-7b38-8d06-5e1a7c3f9b11")
MCP_SERVER = UUID("0192f0de-5a70-7c82-9e14-3b8d6f0a2c12")
TRUSTED_JOB = UUID("0192f0df-3b60-7d17-8f25-6a9c1e4d7b13")
MORNING = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
EVENING = datetime(2026, 3, 2, 18, 5, tzinfo=UTC)
ADA = ActorBody(USER, "Ada Byron", "ada@example.com")
