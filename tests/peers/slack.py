"""Slack's own Python SDK, for the contract tests: what it signs and believes, what its client gets
out of a Web API, and whether its framework is happy with a connection.

    slack.py sign SECRET SECONDS        body on stdin; the signature on stdout
    slack.py believe SECRET SECONDS SIGNATURE   body on stdin; yes or no on stdout
    slack.py client API CHANNEL ROOT    the script below; what it saw as JSON on stdout
    slack.py stream API CHANNEL ROOT    an answer that streams; what was refused as JSON on stdout
    slack.py bolt API                   a bot that answers mentions; `ready` once it is connected;
                                        ends with its standard input
"""

import json
import sys

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.signature import SignatureVerifier

BOT, APP = "xoxb-of-the-tests", "xapp-of-the-tests"


def client(api, channel, root):
    web = WebClient(token=BOT, base_url=api)
    me = web.auth_test()
    payload = {"event_type": "script", "event_payload": {"part": "0"}}
    first = web.chat_postMessage(channel=channel, thread_ts=root, text="first", metadata=payload)
    web.chat_update(channel=channel, ts=first["ts"], text="first, changed")
    web.chat_postEphemeral(channel=channel, user="U7", thread_ts=root, text="for you alone")
    text = {"type": "mrkdwn", "text": "nothing runs"}
    view = {"type": "home", "blocks": [{"type": "section", "text": text}]}
    web.views_publish(user_id="U7", view=view)
    web.assistant_threads_setStatus(channel_id=channel, thread_ts=root, status="is thinking...")
    web.files_upload_v2(channel=channel, thread_ts=root, filename="a.txt", title="a", content="abc")
    seen = web.conversations_replies(channel=channel, ts=root, include_all_metadata=True)
    own = [one for one in seen["messages"] if one.get("user") == me["user_id"]]
    print(json.dumps({
        "texts": [one["text"] for one in own],
        "metadata": [one["metadata"] for one in own if one.get("metadata")],
        "files": [one["title"] for message in own for one in message.get("files") or []],
    }))


def stream(api, channel, root):
    web = WebClient(token=BOT, base_url=api)
    payload = {"event_type": "script", "event_payload": {"part": "0"}}
    reader = {"recipient_team_id": "T1", "recipient_user_id": "U7"}
    answer = web.chat_stream(buffer_size=8, channel=channel, thread_ts=root, **reader)
    for piece in ("**first** of it, ", "more"):
        answer.append(markdown_text=piece)
    answer.stop(markdown_text=" and the end", metadata=payload)
    seen = web.conversations_replies(channel=channel, ts=root)["messages"][-1]["text"]
    late = {"channel": channel, "ts": answer.ts}
    refused = []
    for call in (
        lambda: web.chat_appendStream(markdown_text="late", **late),
        lambda: web.chat_stopStream(**late),
        lambda: web.chat_startStream(channel=channel, thread_ts=root),
    ):
        try:
            call()
        except SlackApiError as error:
            refused.append(error.response["error"])
    web.chat_update(text="all of it", **late)
    for status in ("processing", "active"):
        web.agents_sessions_setStatus(channel_id=channel, thread_ts=root, status=status)
    print(json.dumps({"seen": seen, "refused": refused}))


def bolt(api):
    from slack_bolt import App
    from slack_bolt.adapter.socket_mode import SocketModeHandler

    app = App(client=WebClient(token=BOT, base_url=api), token=BOT, signing_secret="none")

    @app.event("app_mention")
    def answer(event, client):
        client.chat_postMessage(channel=event["channel"], thread_ts=event["ts"], text="bolt heard")

    web = WebClient(token=APP, base_url=api)
    SocketModeHandler(app, app_token=APP, web_client=web).connect()
    print("ready", flush=True)
    sys.stdin.read()


def main():
    mode, *words = sys.argv[1:]
    if mode == "client":
        client(*words)
    elif mode == "stream":
        stream(*words)
    elif mode == "bolt":
        bolt(*words)
    else:
        secret, seconds, *signature = words
        verifier, body = SignatureVerifier(secret), sys.stdin.read()
        if mode == "sign":
            print(verifier.generate_signature(timestamp=seconds, body=body))
        else:
            print("yes" if verifier.is_valid(body, seconds, signature[0]) else "no")


main()
