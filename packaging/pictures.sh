#!/bin/sh
# The first lines of docs/gstreamer.md with the installed plugin: a server in a pipeline, and A1 between two pipelines. The receiving
# pipelines write decoded pictures into a file. Uses the ports 8080, 8554 and 5000.
set -eu

size=$((160 * 120 * 3 / 2))
camera='videotestsrc is-live=true ! video/x-raw,format=I420,width=160,height=120,framerate=30/1 ! x264enc tune=zerolatency key-int-max=60'
# Ends the stream after 30 pictures.
decode='h264parse ! avdec_h264 ! identity eos-after=31 ! filesink location=pictures'
folder=$(mktemp -d)
cd "$folder"

# 30 pictures, and the first one has the many shades of the test picture.
check() { # what
    test "$(stat -c %s pictures)" -ge $((30 * size))
    test "$(head -c $((160 * 120)) pictures | od -An -v -tu1 -w1 | sort -u | wc -l)" -ge 8
    echo "$1: $(($(stat -c %s pictures) / size)) pictures"
    rm pictures
}

# Until a file has a line; a minute at most.
wait_for() { # line file
    timeout 60 sh -c "until grep -q '$1' '$2'; do sleep 0.1; done" || { cat "$2"; exit 1; }
}

# shellcheck disable=SC2086
{
    gst-launch-1.0 -m $camera ! h264parse ! freshwiresink >server.log 2>&1 &
    server=$!
    wait_for freshwiresink-listening server.log
    timeout 60 gst-launch-1.0 -q freshwiresrc location=http://127.0.0.1:8080/live.fw ! $decode
    check "server"
    kill $server
    wait $server || true

    timeout 60 gst-launch-1.0 -m freshwiresrc mode=listener location=a1://127.0.0.1:5000 ! $decode >receiver.log 2>&1 &
    receiver=$!
    wait_for public-key receiver.log
    key=$(sed -n 's/.*public-key=(string)\([^,;]*\).*/\1/p' receiver.log | head -n 1)
    gst-launch-1.0 -q $camera ! freshwiresink location=a1://127.0.0.1:5000 "peer-key=$key" >sender.log 2>&1 &
    sender=$!
    wait $receiver || { cat receiver.log sender.log; exit 1; }
    check "A1"
    # Its receiver has left, which ends it with an error.
    kill $sender 2>/dev/null || true
    wait $sender || true
}
