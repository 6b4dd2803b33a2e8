"""Claude Code as a proposer (extra `claude-code`): its agent loop, our tools, our record of what is paid."""
