//! Browsers without a screen, driven over the WebSocket that they offer to tools.
#![allow(dead_code, reason = "each test uses a part of it")]

mod chromium;
mod firefox;

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use freshwire_netns::Namespaces;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

pub(crate) use chromium::Chromium;
pub(crate) use firefox::Firefox;

/// A browser with one page, 1280 x 800. Dropping it ends it.
pub(crate) trait Browser {
    /// Opens an address.
    fn go(&mut self, address: &str);

    /// The value of an expression in the page.
    fn evaluate(&mut self, expression: &str) -> Value;

    /// The page as PNG.
    fn screenshot(&mut self) -> Vec<u8>;
}

/// The browser's process and the connection to its tools.
struct Tools {
    process: Child,
    socket: WebSocket<TcpStream>,
    asked: u64,
}

impl Tools {
    /// Starts the browser in the near namespace. Behind `listens` it says the tools' address, to which `path` is added.
    fn start(namespaces: &Namespaces, command: &mut Command, listens: &str, path: &str) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = namespaces.spawn_near(command).unwrap();
        let mut talk = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = talk
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix(listens).map(str::to_owned))
            .expect("the browser says where its tools listen");
        // What it says further on must not fill the pipe.
        std::thread::spawn(move || talk.for_each(drop));
        let authority = address.trim_start_matches("ws://").split('/').next().unwrap().to_owned();
        let socket = namespaces.in_near(|| TcpStream::connect(&authority)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (socket, _) = tungstenite::client(format!("{address}{path}"), socket).unwrap();
        Self { process, socket, asked: 0 }
    }

    /// Sends a command, with these members beside the usual ones, and waits for its answer.
    fn ask(&mut self, method: &str, parameters: &Value, more: &[(&str, &str)]) -> Value {
        self.asked += 1;
        let mut command = json!({"id": self.asked, "method": method, "params": parameters});
        for (name, value) in more {
            command[name] = json!(value);
        }
        self.socket.send(Message::text(command.to_string())).unwrap();
        loop {
            let Message::Text(text) = self.socket.read().unwrap() else { continue };
            let answer: Value = serde_json::from_str(&text).unwrap();
            if answer["id"] == self.asked {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The bytes of a picture that came as text.
fn picture(data: &Value) -> Vec<u8> {
    data_encoding::BASE64.decode(data.as_str().unwrap().as_bytes()).unwrap()
}
