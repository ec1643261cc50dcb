"""Scripts: for frontends whose users write small JavaScript expressions and rules, such as recipes.

Scripts run in a QuickJS engine, in a separate process with limits on time and memory.
"""

from skitter.frontends.scripting.engine import ScriptEngine, ScriptError, ScriptPage

__all__ = ["ScriptEngine", "ScriptError", "ScriptPage"]
