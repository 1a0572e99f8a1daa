"""A device's process without a device: it answers, hangs, prints or dies as it is told."""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    if os.environ.get("ECHO_START") == "error":
        print(json.dumps({"number": 0, "error": "no such device"}), flush=True)
        time.sleep(60)
    print(json.dumps({"number": 0, "value": {"device": sys.argv[2], "rank": sys.argv[1]}}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "hang":
            time.sleep(60)
        if request["do"] == "die":
            print("the last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), 11)
        print(json.dumps({"number": request["number"], "value": request.get("say")}), flush=True)


main()
