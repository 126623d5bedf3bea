"""Names that the tools of callers cannot have."""

from quarterdeck.agents.add_note import ADD_NOTE
from quarterdeck.agents.bash import BASH
from quarterdeck.agents.current_time import CURRENT_TIME
from quarterdeck.agents.edit_file import EDIT_FILE
from quarterdeck.agents.list_files import LIST_FILES
from quarterdeck.agents.read_file import READ_FILE
from quarterdeck.agents.search_files import SEARCH_FILES
from quarterdeck.agents.skill_files import LIST_SKILL_FILES, READ_SKILL_FILE
from quarterdeck.agents.write_file import WRITE_FILE

BUILT_IN_TOOLS = frozenset(
    {
        ADD_NOTE,
        BASH,
        CURRENT_TIME,
        EDIT_FILE,
        LIST_FILES,
        LIST_SKILL_FILES,
        READ_FILE,
        READ_SKILL_FILE,
        SEARCH_FILES,
        WRITE_FILE,
    }
)
