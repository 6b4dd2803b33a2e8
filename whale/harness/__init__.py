"""What a harness program sees. Inside the sandbox this module is all that exists of WHALE."""

from whale.harness.api import Harness, Model, Reply, ToolError, Tools

__all__ = ["Harness", "Model", "Reply", "ToolError", "Tools"]
