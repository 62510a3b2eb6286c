"""Chats and preferences: records to messages, messages to tokens with their answers."""
