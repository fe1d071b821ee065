#!/bin/sh
# A worker service in POSIX sh and curl: executes one named task, one attempt at a time.
#
#   worker.sh NAMESPACE/NAME@VERSION COMMAND [ARGUMENT]...
#
# COMMAND reads the attempt as JSON on standard input (spec.arguments, configuration) and writes its result as JSON to
# standard output. A status other than 0 is a failed attempt.
#
# MITOSIS_API      address of the API (http://127.0.0.1:8700)
# MITOSIS_TOKEN_FILE  a file with the token of a user; read at the first start only
# WORKER_ID        name of this service
# WORKER_STATE     a folder that survives a restart: token and journal (./WORKER_ID)
set -eu

[ $# -ge 2 ] || { sed -n '2,14p' "$0" >&2; exit 64; }
api=${MITOSIS_API:-http://127.0.0.1:8700}/api/v1
id=${WORKER_ID:?name this service in WORKER_ID}
state=${WORKER_STATE:-./$id}
task=$1
shift
namespace=${task%%/*} rest=${task#*/}
name=${rest%%@*} version=${rest#*@}
umask 077
mkdir -p "$state"

# The token is in a file that curl reads, never in an argument, which every user of the machine can see.
save_token() { printf 'header = "Authorization: Bearer %s"\n' "$1" >"$state/curl.new" && mv "$state/curl.new" "$state/curl"; }
[ -s "$state/curl" ] || save_token "$(cat "${MITOSIS_TOKEN_FILE:?}")"

# call METHOD PATH [FILE]: the body of the answer is in $state/answer.$$, its status is printed; 000 without an answer.
call() {
    set -- "$1" "$2" "${3:-}" "$state/answer.${who:-main}"
    if [ -n "$3" ]; then
        curl -sS -K "$state/curl" -m 30 -X "$1" -H 'Content-Type: application/json' --data-binary "@$3" \
            -o "$4" -w '%{http_code}' "$api$2" 2>/dev/null || :
    else
        curl -sS -K "$state/curl" -m 30 -X "$1" -o "$4" -w '%{http_code}' "$api$2" 2>/dev/null || :
    fi
}

# field NAME FILE: a text or number at the first place where an object of the file has this name.
field() { sed -n 's/.*[{,]"'"$1"'":"\{0,1\}\([^",}]*\).*/\1/p' "$2" | head -n 1; }
# first NAME FILE: as field, but the first of several on one line.
first() { sed 's/"'"$1"'":/\
&/' "$2" | sed -n '2s/^"'"$1"'":"\{0,1\}\([^",}]*\).*/\1/p'; }

# Refusals that pass: repeat the same call.
passes() { case $1 in 000 | 408 | 425 | 429 | 5??) return 0 ;; *) return 1 ;; esac }

register() {
    unreported=
    if [ -s "$state/report.json" ]; then
        unreported="{\"task_id\":\"$(first task_id "$state/report.json")\",\"attempt\":$(first attempt "$state/report.json")}"
    fi
    cat >"$state/register.json" <<BODY
{"worker_id":"$id","machine_id":"$(uname -n)","metadata":{"version":"sh","pid":$$},"unreported":[$unreported],
 "supported_tasks":[{"namespace":"$namespace","name":"$name","version":"$version","configuration":${WORKER_CONFIGURATION:-{\}}}]}
BODY
    while status=$(call POST /workers "$state/register.json"); do
        [ "$status" = 201 ] && break
        passes "$status" || { cat "$state/answer.main" >&2; exit 78; }
        sleep 1
    done
    save_token "$(first token "$state/answer.main")"
    incarnation=$(first incarnation "$state/answer.main")
}

# Every few seconds: the process runs; and what it executes is to be stopped, if the answer names it.
beat() {
    who=beat
    while sleep "${WORKER_HEARTBEAT:-5}" && kill -0 "$main" 2>/dev/null; do
        held=$(cat "$state/held" 2>/dev/null || :)
        printf '{"incarnation":%s,"held":[%s]}' "$incarnation" "$held" >"$state/beat.json"
        status=$(call POST /workers/heartbeat "$state/beat.json")
        case $status in
        200) grep -q '"stop":\[{' "$state/answer.beat" && [ -s "$state/child" ] && : >"$state/stopped" && kill -TERM "$(cat "$state/child")" 2>/dev/null || : ;;
        409) kill -TERM "$main"; exit ;;    # a later process has registered, or this one was silent for too long
        esac
    done
}

# send: the report in the journal, until it is answered. What is refused for good is reported as that.
send() {
    while status=$(call POST /workers/tasks "$state/report.json"); do
        [ "$status" = 200 ] && break
        if ! passes "$status"; then
            printf '{"incarnation":%s,"task_id":"%s","attempt":%s,"outcome":"failed","kind":"result_refused"}' \
                "$incarnation" "$(first task_id "$state/report.json")" "$(first attempt "$state/report.json")" >"$state/report.new"
            cmp -s "$state/report.new" "$state/report.json" && break
            mv "$state/report.new" "$state/report.json"
            continue
        fi
        sleep 1
    done
    rm -f "$state/report.json" "$state/held"
}

# execute FILE: the attempt in the file. Its report is in the journal before it is sent.
execute() {
    task_id=$(first task_id "$1") attempt=$(first attempt "$1")
    printf '{"task_id":"%s","attempt":%s}' "$task_id" "$attempt" >"$state/held"
    rm -f "$state/stopped"
    shift
    "$@" <"$state/attempt.json" >"$state/result" &
    child=$!
    echo "$child" >"$state/child"
    wait "$child" && code=0 || code=$?
    rm -f "$state/child"
    begin="{\"incarnation\":$incarnation,\"task_id\":\"$task_id\",\"attempt\":$attempt"
    if [ -e "$state/stopped" ]; then
        printf '%s,"operation":"Cancel"}' "$begin"
    elif [ "$code" = 0 ] && [ -s "$state/result" ]; then
        printf '%s,"detail":{"result":%s}}' "$begin" "$(cat "$state/result")"
    elif [ "$code" = 0 ]; then
        printf '%s}' "$begin"
    else
        printf '%s,"outcome":"failed","exit_code":%s}' "$begin" "$code"
    fi >"$state/report.new"
    mv "$state/report.new" "$state/report.json"
    send
}

finish() {
    trap - TERM INT
    kill "$beater" 2>/dev/null || :
    [ -s "$state/child" ] && kill -TERM "$(cat "$state/child")" 2>/dev/null || :
    printf '{"incarnation":%s,"reason":"stopped"}' "$incarnation" >"$state/goodbye.json"
    call POST /workers/goodbye "$state/goodbye.json" >/dev/null
    exit 0
}

main=$$
rm -f "$state/held" "$state/child" "$state/stopped"
register
printf '{"incarnation":%s}' "$incarnation" >"$state/beat.json"
call POST /workers/heartbeat "$state/beat.json" >/dev/null
beat &
beater=$!
trap finish TERM INT
[ ! -s "$state/report.json" ] || send

while :; do
    status=$(call GET "/workers/tasks?incarnation=$incarnation&wait_seconds=${WORKER_WAIT:-5}")
    case $status in
    200)
        mv "$state/answer.main" "$state/attempt.json"
        execute "$state/attempt.json" "$@"
        ;;
    204) ;;
    *)
        passes "$status" || { cat "$state/answer.main" >&2; finish; }
        sleep 1
        ;;
    esac
done
