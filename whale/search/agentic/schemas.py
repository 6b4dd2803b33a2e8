"""The tools as a model sees them, read from a file beside this one."""

import json
from pathlib import Path
from typing import Any

SCHEMAS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "tools.json").read_text(encoding="utf-8"))
