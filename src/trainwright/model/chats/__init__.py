"""Chats as a model reads them: templates that make text of messages, and which tokens are answers; no torch."""
