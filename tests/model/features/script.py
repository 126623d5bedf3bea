"""Writes a sequence down as a script that a person can run against `qd serve`."""

import re

from tests.model.features.machine import Failure

_HEAD = """\
#!/bin/sh
# {promise}
# {reason}
#
# Seed {seed}. Start these two first, then run this script with QD_URL and QD_KEY:
#   python -m tests.model.features.provider --port 9999
#   QUARTERDECK_MODEL_OPENAI_BASE_URL=http://127.0.0.1:9999/v1 QUARTERDECK_MODEL_CONTEXT_TOKENS={context} \\
#     QUARTERDECK_MODEL_COMPACTION={compaction} QUARTERDECK_WORKER_SWEEP_SECONDS=0.3 qd serve
set -eu
: "${{QD_URL:=http://127.0.0.1:8000}}" "${{PROVIDER:=http://127.0.0.1:9999}}" "${{PAUSE:=1}}"

field() {{ python3 -c 'import json, sys
value = json.load(sys.stdin)
for key in sys.argv[1:]: value = value[int(key) if key.lstrip("-").isdigit() else key]
print(value)' "$@"; }}
api() {{ curl -sS -g -X "$1" "$QD_URL$2" -H "Authorization: Bearer $QD_KEY" -H "Content-Type: $3" --data-binary @-; }}
# send METHOD PATH [VARIABLE]: the body is on stdin, and the variable gets the id of the answer.
send() {{
  printf '%s %s\\n' "$1" "$2" >&2
  said=$(api "$1" "$2" application/json)
  printf '  %s\\n' "$said" >&2
  [ $# -lt 3 ] || eval "$3=$(printf %s "$said" | field id)"
  sleep "$PAUSE"
}}
# upload PATH VARIABLE CONTENT
upload() {{ eval "$2=$(printf "$3" | api POST "$1" application/octet-stream | field id)"; }}
get() {{ curl -sS -g "$QD_URL$1" -H "Authorization: Bearer $QD_KEY"; }}
# look VARIABLE PATH POSITION: the id of an item of a list.
look() {{ eval "$1=$(get "$2" | field items "$3" id)"; }}
look_input() {{
  eval "$1=$(get "/v1/sessions/$2/events?limit=200" | python3 -c 'import json, sys
print([one["data"]["input_id"] for one in json.load(sys.stdin)["items"] if one["type"] == "input.accepted"][-1])')"
}}
# answer POSITION: the model answers this one of the requests that wait, the oldest being 0.
answer() {{ curl -sS -X POST "$PROVIDER/answer/$1" --data-binary @- >/dev/null; sleep "$PAUSE"; }}

"""
_TAIL = """\

# What the model was sent, and the logs.
curl -sS "$PROVIDER/asked"
{logs}
"""


def script_of(failure: Failure) -> str:
    """Its last lines show what the promise is about."""
    head = _HEAD.format(
        promise=failure.promise.replace("_", " ").capitalize() + ": this is broken.",
        reason=failure.reason.replace("\n", " "),
        seed=failure.seed,
        context=failure.sequence.context,
        compaction=failure.sequence.compaction,
    )
    made = [re.match(r"send POST \S+ (SESSION_[0-9]+) ", line) for line in failure.script]
    logs = "\n".join(f'get "/v1/sessions/${one[1]}/events?limit=200"; echo' for one in made if one)
    return head + "\n".join(failure.script) + "\n" + _TAIL.format(logs=logs)
