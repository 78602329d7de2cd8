"""Writes docs/hooks.md from the docstrings of simrun.hookspecs; run it after changing them."""

import inspect
import re
import textwrap
from pathlib import Path

from simrun import hookspecs

TARGET = Path(__file__).parents[1] / "docs" / "hooks.md"
HEAD = f"""\
# Hooks

<!-- made by scripts/hook_reference.py from simrun/hookspecs.py -->

Every hook, version {hookspecs.VERSION} of them. A plugin is a module, or an object that is handed
over by `plugins=` or `observers=`, with functions marked `@simrun.hookimpl`. It lists the arguments
that it needs, in any order, without defaults. [Write a plugin](extending.md) shows whole ones.

The examples begin with:

```python
import time

import simrun
from simrun.adapter import AdapterEntry
from simrun.records import Abort, MemoryItem, Retry
from simrun.sink import SinkEntry
```
"""


def sections(doc):
    """Text before the first heading, then each numpydoc section by its name."""
    first, *parts = re.split(r"^(\w+)\n-+\n", doc, flags=re.MULTILINE)
    return {"": first.strip(), **dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))}


def reference():
    """The page."""
    pages = [HEAD]
    for name, hook in vars(hookspecs).items():
        if not name.startswith("simrun_"):
            continue
        parts = sections(inspect.getdoc(hook))
        first = hook.simrun_spec["firstresult"]
        error, _, when = parts["Raises"].partition("\n")
        code = re.sub(r"^(>>>|\.\.\.) ?", "", parts["Examples"], flags=re.MULTILINE)
        signature = str(inspect.signature(hook)).replace("'", "")
        text = parts[""].replace("``", "`")
        pages.append(
            f"## {name}\n\n"
            f"```text\n{name}{signature}\n```\n\n"
            f"{text}\n\n"
            f"{'The first plugin that answers decides.' if first else 'Every plugin is asked.'}\n\n"
            f"*What may be raised:* {error}. {' '.join(textwrap.dedent(when).split())}\n\n"
            f"```python\n{code}\n```\n".replace("``simrun", "`simrun").replace('``"', '`"')
        )
    return "\n".join(pages)


if __name__ == "__main__":
    TARGET.write_text(reference())
