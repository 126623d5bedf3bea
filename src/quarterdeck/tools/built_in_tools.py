"""Names that the tools of callers cannot have."""

from quarterdeck.tools.add_note import ADD_NOTE
from quarterdeck.tools.bash import BASH
from quarterdeck.tools.current_time import CURRENT_TIME
from quarterdeck.tools.edit_file import EDIT_FILE
from quarterdeck.tools.list_files import LIST_FILES
from quarterdeck.tools.read_file import READ_FILE
from quarterdeck.tools.search_files import SEARCH_FILES
from quarterdeck.tools.skill_files import LIST_SKILL_FILES, READ_SKILL_FILE
from quarterdeck.tools.write_file import WRITE_FILE

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
