"""Domains: tasks, tools and verifiers."""
