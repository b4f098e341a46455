#!/bin/sh
# Requests of schemathesis to a server with a model, by the server's own OpenAPI document.
#
#     python -m venv fuzz && fuzz/bin/pip install schemathesis
#     scripts/serving_fuzz.sh runs/base fuzz/bin/schemathesis [OPTIONS OF `schemathesis run`..]
set -eu
model=$1 schemathesis=$2
shift 2
port=${PORT:-5911}
settings=$(mktemp)
"${PYTHON:-python}" -m transformer_mt --quiet serve --model "$model" --port "$port" &
server=$!
trap 'kill $server; rm "$settings"' EXIT
# No schema says which prefix leaves room for a translation, or what a file must be called.
cat > "$settings" <<'END'
[[operations]]
include-path-regex = "/(complete|translate_file)"
checks.positive_data_acceptance.enabled = false
END
until curl --silent --fail --output /dev/null "http://127.0.0.1:$port/readyz"; do
    kill -0 $server
    sleep 0.2
done
"$schemathesis" --config-file "$settings" run "http://127.0.0.1:$port/openapi.json" --seed 1 --request-timeout 60 "$@"
