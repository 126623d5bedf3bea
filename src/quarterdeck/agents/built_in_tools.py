"""Names that the tools of callers cannot have."""

from quarterdeck.agents.add_note import ADD_NOTE
from quarterdeck.agents.current_time import CURRENT_TIME
from quarterdeck.agents.skill_files import LIST_SKILL_FILES, READ_SKILL_FILE

BUILT_IN_TOOLS = frozenset({ADD_NOTE, CURRENT_TIME, LIST_SKILL_FILES, READ_SKILL_FILE})
