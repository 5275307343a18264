"""The helper of hooks: a service for one user's programs, with one key, that ends when idle."""

import json
import logging
import os
import secrets
import threading
from contextlib import suppress
from dataclasses import replace
from glob import escape, glob

from memrecall.integrations.hooks.bindings import Outbox, read_binding, write_private
from memrecall.integrations.hooks.client import HELPER, find_helper, helper_path, write_log
from memrecall.integrations.hooks.hook import deliver
from memrecall.logs import log_to_stderr
from memrecall.server.runner import PrivateAccess, ServerInfo, run_in_event_loop, serve
from memrecall.server.supervisor import end_process_in
from memrecall.settings import load_settings

log = logging.getLogger("memrecall.server")


def run_helper(path: str, lock: int) -> None:
    """Serve the hooks in the folder of a binding until nothing was asked for some minutes."""
    os.set_inheritable(lock, False)
    log_to_stderr()
    db = read_binding(path).db
    settings = replace(
        load_settings({"db": db or None}).settings,
        host="127.0.0.1",
        port=0,
        workers=1,
        text_workers=0,  # this process is the only one
        model="",
        dashboard=False,
    )
    access = PrivateAccess(secrets.token_urlsafe(32))
    address = helper_path(path)

    def announce(info: ServerInfo) -> None:
        fields = {
            "url": info.url,
            "key": access.key,
            "db": db,
            "pid": os.getpid(),
        }
        write_private(address, json.dumps(fields).encode())
        log.info("helper", extra={"fields": {"pid": os.getpid()}})
        threading.Thread(target=_deliver_all, args=(path,), daemon=True).start()

    try:
        run_in_event_loop(serve(settings, announce, on_stop=end_process_in, private=access))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(address)
        if access.lost is not None:
            write_log(path, HELPER, problem=f"{access.lost} was deleted, so the helper has ended")


def _deliver_all(path: str) -> None:
    """Store what earlier hooks could not, of all bindings in the folder."""
    for each in glob(os.path.join(escape(os.path.dirname(path)), "*.json")):
        try:
            binding = read_binding(each)
            if find_helper(each, binding._asdict()):
                deliver(each, binding, Outbox(each, binding))
        except (OSError, ValueError) as error:
            write_log(each, HELPER, problem=str(error))
