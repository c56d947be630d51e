//! What the command keeps to itself, what it leaves behind, and how it reads rates.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test waits for real processes")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod support;
mod wait;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use support::{Running, freshwire, has, run, succeeds};
use wait::wait_until;

const PROGRAM: &str = env!("CARGO_BIN_EXE_freshwire");

/// Whatever is wrong with an address: its password is neither printed nor taken for the name of a host.
#[test]
fn no_error_has_a_password() {
    let addresses = [
        "http://anna:sesame@nowhere.invalid/live.fw",
        "http://anna:ses/ame@nowhere.invalid/live.fw",
        "https://anna:sesame@nowhere.invalid/live.fw",
        "rtsp://anna:sesame@nowhere.invalid:1/live",
        "mqtt://anna:ses/ame@nowhere.invalid/a",
        "mqtts://anna:sesame@nowhere.invalid/a#",
        "nats://anna:sesame@nowhere.invalid/a?ca",
        "anna:sesame@nowhere.invalid:5000",
        "anna:sesame@nowhere.invalid",
        "http://anna:sesame@",
        "http://anna:sesame@nowhere.invalid/a b",
        "anna:sesame@127.0.0.1:1",
    ];
    let commands: [&[&str]; 9] = [
        &["recv"],
        &["recv", "--from"],
        &["recv", "--listen"],
        &["recv", "--carrier", "a1", "--listen"],
        &["send", "layers", "--to"],
        &["send", "layers", "--listen"],
        &["top", "--once"],
        &["sign"],
        &["serve", "--listen-internal", "none", "--listen-rtsp", "none", "--listen-http", "none", "--check"],
    ];
    for command in commands {
        for address in addresses {
            let mut freshwire = freshwire(command);
            freshwire
                .arg(address)
                .env("FRESHWIRE_LINK_SECRET", "a secret of some length")
                .stdin(Stdio::null());
            let ended = Running::start(&mut freshwire).wait();
            let said = format!("{}{}", ended.stderr, String::from_utf8_lossy(&ended.stdout));
            let shows = |secret: &str| said.contains(secret);
            assert!(
                !["sesame", "ses/", "anna", "\"ses"].into_iter().any(shows),
                "{command:?} {address}: {said}"
            );
            assert!(!said.contains("panicked"), "{said}");
        }
    }
    let wrong = run(&["serve", "--user", ":sesame"]).failed(2, "write NAME:PASSWORD");
    assert!(!wrong.stderr.contains("sesame"), "{wrong:?}");
}

/// Other users of the machine see the list of processes. `<` and `>` enclose the secrets.
#[test]
fn the_list_of_processes_has_no_secret() {
    // It never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap();
    let quiet = "--listen-internal none --listen-http none --listen-rtmp none --listen-webrtc none --listen-rtsp 127.0.0.1:0";
    let mut commands = vec![
        format!(
            "serve {quiet} --user anna:<sesame> --user=eve:<s:same> cam=rtsp://bob:<sesame>@{host}/x \
             a=rtsp://bob:<se>?<same@{host}/x> b=rtsp://{host}/x?<token=sesame> c=mqtt://anna:<sesame>@{host}/a \
             d=mqtts://anna:<ses@me>@{host}/a?<version=5> e=nats://<sesame>@{host}/a f=tls://anna:<sesame>@{host}/kv/a \
             live/g=publish --forward live/g=rtmp://{host}/app/<sesame> --forward=live/g=rtmps://{host}/app/<ses/ame?pass=sesame> \
             --forward live/g=rtmp://{host}/app?<pass=sesame>"
        ),
        format!("serve {quiet} publish --forward rtmp://{host}/app/<sesame?a=b&pass=sesame>"),
        format!("serve {quiet} publish --forward=rtmp://{host}/app/<sesame>"),
        format!("recv http://anna:<sesame>@{host}/live.fw?<expires=1&sig=sesame>"),
        format!("top --once http://anna:<sesame>@{host}"),
    ];
    if cfg!(feature = "moq") {
        let relay = format!("https://{host}/a?<jwt=sesame>");
        commands.push(format!(
            "serve {quiet} h=moq://{host}/a/b?<jwt=sesame> i=publish --relay {relay} --relay=i={relay}"
        ));
        commands.push(format!("relay --listen 127.0.0.1:0 --peer {relay} --peer={relay}"));
    }
    for command in commands {
        let arguments = command.replace(['<', '>'], "");
        let mut process = freshwire(&arguments.split(' ').collect::<Vec<_>>());
        let mut process =
            process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let shown = || {
            let line = std::fs::read(format!("/proc/{}/cmdline", process.id())).unwrap();
            String::from_utf8_lossy(&line).replace('\0', " ")
        };
        let (mut hidden, mut is_secret) = (String::new(), false);
        for character in command.chars() {
            match character {
                '<' | '>' => is_secret = character == '<',
                _ => hidden.push(if is_secret { 'x' } else { character }),
            }
        }
        wait_until(|| shown().ends_with(&format!(" {hidden} ")), || format!("{} is not {hidden}", shown()));
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

/// A proxy in front of the internal address may want a password, as nginx does.
#[test]
fn top_gives_the_password_to_a_proxy_that_asks_for_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = std::thread::spawn(move || {
        let mut requests = Vec::new();
        while requests.len() < 4 {
            let mut socket = listener.accept().unwrap().0;
            let mut request = [0; 1024];
            let len = socket.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..len]).into_owned();
            let answer = if request.contains("Authorization: Basic YW5uYTpzZXNhbWU=") {
                "HTTP/1.0 200 OK\r\n\r\n[]"
            } else {
                "HTTP/1.0 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\n\r\n"
            };
            socket.write_all(answer.as_bytes()).unwrap();
            requests.push(request);
        }
        requests
    });
    run(&["top", "--once", &format!("http://anna:sesame@{address}")]).ok();
    let requests = proxy.join().unwrap();
    assert!(!requests[0].contains("Authorization"), "it is given when it is asked for: {requests:?}");
    let host = format!("Host: {address}\r\n");
    assert!(requests.iter().all(|request| request.contains(&host) && !request.contains("sesame")));
}

/// The processes that have this text among their arguments.
fn running(text: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let numbers = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let has_text = |number: &String| {
        let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    };
    numbers.filter(has_text).collect()
}

fn has_links() -> bool {
    succeeds("an emulated link", &mut freshwire(&["link", "--account", "none", "--", "true"]))
}

/// Neither shells nor their children, in the foreground, in the background or in sessions of their own, outlive a link that is killed
/// or ends.
#[test]
fn nothing_outlives_a_link() {
    if !has_links() || !has("setsid", "--version") {
        return;
    }
    for (number, signal) in [(1, "-KILL"), (2, "-TERM")] {
        // A duration that no other process sleeps for.
        let time = format!("9{}.{number}", std::process::id());
        let script = format!(
            "sleep {time} & (sleep {time}; true) & sh -c 'setsid sleep {time} & sleep {time}; true' & sleep {time}; true"
        );
        let mut link =
            freshwire(&["link", "--account", "none", "--peer", &script, "--", "sh", "-c", &script]);
        let link = link.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let sleep = format!("sleep\0{time}");
        wait_until(|| running(&sleep).len() >= 10, || format!("{:?} of 10 sleep", running(&sleep)));
        let killed = Command::new("kill").args([signal, &link.id().to_string()]).status().unwrap();
        assert!(killed.success());
        wait_until(|| running(&time).is_empty(), || format!("{signal}: {:?} are left", running(&time)));
        let mut link = link;
        link.wait().unwrap();
    }
}

/// Programs behind a link have a process namespace, and see its processes where they may.
#[test]
fn a_program_behind_a_link_finds_itself_in_proc() {
    if !has_links() {
        return;
    }
    let script = "sleep 60 & kill -0 $! && kill $! && wait $!; test $? -gt 128 && cat /proc/$$/comm";
    let ended = run(&["link", "--account", "none", "--", "sh", "-c", script]).ok();
    assert_eq!(ended.text().trim(), "sh");
    // An orphan is collected by the namespace's first process.
    let script = "(sh -c 'exit 3' &); sleep 0.2; exit 7";
    run(&["link", "--account", "none", "--", "sh", "-c", script]).failed(7, "");
}

#[test]
fn a_link_takes_rates_as_tc_does() {
    if !has_links() {
        return;
    }
    for rate in ["100mbit", "100MBIT", "100Mbit/s", "1gibit", "512kbit"] {
        run(&["link", "--account", "none", "--rate", rate, "--", "true"]).ok();
    }
    run(&["link", "--rate", "100mbps", "--", "true"]).failed(2, "write bits, such as 100Mbit");
    run(&["link", "--rate", "down=100m", "--", "true"]).failed(2, "is not complete; write bits");
}

/// A machine without ffmpeg, as after the installation of the package alone, can serve.
#[test]
fn the_doctor_does_not_fail_for_want_of_ffmpeg() {
    let mut doctor = freshwire(&["doctor", "--json"]);
    let ended = Running::start(doctor.env("PATH", "/nowhere").stdin(Stdio::null())).wait();
    let lines = ended.text().lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let lines: Vec<_> = lines.collect();
    let ffmpeg = lines.iter().find(|line| line["data"]["name"] == "ffmpeg").unwrap();
    assert_eq!(ffmpeg["data"]["status"], "warn", "{ffmpeg}");
    let missing = &lines.last().unwrap()["data"]["missing"];
    assert_eq!((ended.code, missing.as_u64()), (Some(0), Some(0)), "{lines:?}");
}

/// Asks for multicast over one interface, and waits for packets at the other.
const VIEWER: &str = r#"
import socket, struct, sys, time
asked, joined = sys.argv[1], sys.argv[2]
group = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
group.bind(("239.192.0.0", 5004))
group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("4s4s", socket.inet_aton("239.192.0.0"), socket.inet_aton(joined)))
give_up = time.time() + 60
while True:
    try: rtsp = socket.create_connection((asked, 8554), 5); break
    except OSError:
        if time.time() > give_up: raise
        time.sleep(0.05)
def ask(method, uri, more=""):
    global count
    rtsp.sendall(f"{method} {uri} RTSP/1.0\r\nCSeq: 1\r\n{more}\r\n".encode())
    return rtsp.recv(4096).decode()
uri = f"rtsp://{asked}:8554/live"
while "200 OK" not in (said := ask("DESCRIBE", uri)):
    if time.time() > give_up: sys.exit(said)
    time.sleep(0.2)
said = ask("SETUP", uri + "/trackID=0", "Transport: RTP/AVP;multicast\r\n")
print(said.split("source=")[1].split(";")[0], flush=True)
session = said.split("Session: ")[1].split(";")[0].split("\r")[0]
ask("PLAY", uri, f"Session: {session}\r\n")
group.settimeout(float(sys.argv[3]))
try: print("from", group.recvfrom(2048)[1][0])
except TimeoutError: print("nothing")
"#;

/// Two interfaces: the viewers' requests come in at one, the pictures go out at the one that is set.
#[test]
fn multicast_leaves_by_its_interface() {
    let namespace = ["-Urn", "ip", "link", "add", "dev", "va", "type", "veth", "peer", "name", "vb"];
    if !has("ffmpeg", "-version")
        || !has("python3", "--version")
        || !succeeds("a network namespace with veth", Command::new("unshare").args(namespace))
    {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("viewer.py", VIEWER);
    let network = "ip link set lo up; for n in 1 2; do ip link add dev v$n type veth peer name w$n; \
                   ip addr add 10.$n.0.1/24 dev v$n; ip link set v$n up; ip link set w$n up; done";
    for (setting, patience, wanted) in [
        ("multicast_interface = \"10.2.0.1\"", "60", "10.2.0.1\nfrom 10.2.0.1\n"),
        ("", "3", "10.1.0.1\nnothing\n"),
    ] {
        write(
            "f.toml",
            &format!(
                "[rtsp]\nlisten = \"10.1.0.1:8554\"\nmulticast = \"239.192.0.0/24\"\n{setting}\n[http]\nlisten = \"none\"\n\
                 internal = \"none\"\n[access]\nopen = true\n[streams.live]\nsource = \"test\"\n"
            ),
        );
        let script = format!(
            "{network}; cd {}; {PROGRAM} serve --config f.toml 2>log >&2 & python3 viewer.py 10.1.0.1 10.2.0.1 {patience}; \
             code=$?; kill $!; wait; exit $code",
            folder.path().display()
        );
        let mut shell = Command::new("unshare");
        let ended = Running::start(shell.args(["-Urn", "sh", "-c", &script]).stdin(Stdio::null())).wait();
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(&ended.stdout), wanted, "{setting}: {ended:?}\n{log}");
    }
    write("f.toml", "[rtsp]\nmulticast = \"239.192.0.0/24\"\nmulticast_interface = \"203.0.113.9\"\n");
    let path = folder.path().join("f.toml");
    let wrong = run(&["serve", "--check", "--config", path.to_str().unwrap()]);
    wrong.failed(2, "no interface of this machine has 203.0.113.9");
}
