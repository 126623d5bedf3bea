# An MCP server over stdio that keeps what it was sent. Every call has one of these names:
#   seen: answers with all messages so far · wait: never answers · other names: something hostile
all=""
say() { printf '%s\n' "$1"; }
answer() { say '{"jsonrpc":"2.0","id":'"$id"',"result":'"$1"'}'; }
while IFS= read -r line; do
    id=0
    [[ $line =~ \"id\":([0-9]+) ]] && id=${BASH_REMATCH[1]}
    all="$all${line//\"/\'} "
    case $line in
        *'"method":"initialize"'*)
            answer '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}' ;;
        *'"method":"tools/list"'*) answer '{"tools":[{"name":"seen","inputSchema":{"type":"object"}}]}' ;;
        *'"name":"seen"'*) answer '{"content":[{"type":"text","text":"'"$all"'"}]}' ;;
        *'"name":"long-line"'*) cat /dev/zero ;;
        *'"name":"notifications"'*)
            while say '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"'"$all$all"'"}}'; do :; done ;;
        *'"name":"requests"'*)
            while say '{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}'; do :; done ;;
        *'"name":"garbage"'*) while say '{{{'; do :; done ;;
        *'"name":"end"'*) echo "out of luck: $SECRET" >&2; exit 1 ;;
    esac
done
