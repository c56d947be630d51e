//! `freshwire recv`: reads a stream, checks it, and says how old it was.

mod account;
mod args;
mod ends;
mod messages;
mod seen;
mod stream;

use std::io::{self, Read};
use std::net::TcpStream;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::interrupt::Interrupt;
use crate::output::{Progress, print, say};
use account::Account;
use ends::{Console, Input, Output, WATCH};
use stream::Records;

pub(crate) use args::RecvArgs;

/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;

/// Runs `freshwire recv`. Exit code 1: the stream was torn or had wrong bytes.
pub(crate) fn run(args: &RecvArgs) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    let interrupt = Interrupt::watch()?;
    let mut out = plan.out.as_deref().map(Output::open).transpose()?;
    let mut input = plan.open()?;
    // Not before: a server that refuses costs no earlier recording.
    plan.out.as_deref().map(Output::clear).transpose()?;
    interrupt.arm();
    let clock = plan.clock(&input);
    let mut account = Account::new(plan.checks_layers, plan.deadline, clock);
    let mut progress = Progress::new(args.quiet);
    let mut tell = Console { progress: &mut progress, interrupt: &interrupt };
    let end = match &mut input {
        Input::Stream(stream) => {
            let mut records = Records::new(plan.framing, plan.checks_layers);
            read(stream, &mut records, &mut account, out.as_mut(), &mut tell)
        }
        Input::Messages(open) => {
            let is_layered = plan.checks_layers;
            messages::read(open, is_layered, &mut account, out.as_mut(), &mut tell)
        }
    };
    progress.finish();
    let problem = match end {
        Ok(end) => end,
        Err(error) if is_reset(&error) => Some(format!("the connection broke: {error:#}")),
        Err(error) => return Err(error),
    };
    if let Some(problem) = &problem {
        say(&format!("freshwire: {problem}"));
    }
    let text = if args.json { account.json(problem.as_deref())? } else { account.text() };
    if out.as_ref().is_some_and(|out| out.is_standard) {
        say(&text);
    } else {
        print(&text)?;
    }
    Ok(if problem.is_none() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn is_reset(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

/// Reads to the end, or until the user ends it. `Ok(Some(..))`: what is wrong with the stream.
fn read(
    stream: &mut TcpStream,
    records: &mut Records,
    account: &mut Account,
    mut out: Option<&mut Output>,
    tell: &mut Console<'_>,
) -> anyhow::Result<Option<String>> {
    let mut buffer = vec![0; READ_BYTES];
    stream.set_read_timeout(Some(WATCH)).context("cannot set a time-out")?;
    while !tell.interrupt.arrived() {
        let len = match stream.read(&mut buffer) {
            Ok(len) => len,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                tell.progress.tell(freshwire_io::now(), || account.progress());
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let now = freshwire_io::now();
        if len == 0 {
            return Ok(records.finish().err().map(|error| error.to_string()));
        }
        account.bytes(len as u64);
        records.push(&buffer[..len]);
        loop {
            match records.next() {
                None => break,
                Some(Err(error)) => return Ok(Some(error.to_string())),
                Some(Ok(item)) => {
                    if let Err(error) = account.item(&item, now) {
                        return Ok(Some(error.to_string()));
                    }
                    let written = out.as_mut().map_or(Ok(true), |out| out.write(item.bytes()))?;
                    if !written {
                        return Ok(None);
                    }
                }
            }
        }
        tell.progress.tell(now, || account.progress());
    }
    Ok(None)
}
