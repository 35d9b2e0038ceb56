//! Connections between the processes of a job: messages with a length before them, as JSON.

use crate::error::{Error, Result};
use crate::train::ledger::StepSamples;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::shares::Shares;

/// The longest message: nobody sends more, so more is noise from a stranger.
const LONGEST: usize = 1 << 20;

/// What travels between rank 0 and another rank.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// To rank 0, first: who comes.
    Hello(Hello),
    /// From rank 0, when everybody is there.
    Welcome(Welcome),
    /// From rank 0 instead: why not.
    Refused(String),
    /// To rank 0: a trainer's device has passed a step.
    Trained(StepSamples),
    /// To rollouts: all samples below are in the ledger.
    Committed(u64),
    /// To rank 0: Ctrl-C.
    Stop,
    /// To rollouts: hand out nothing more, and say how far you are.
    HowFar,
    /// To rank 0: the next sample of a rollout.
    Next(u64),
    /// To rollouts: the last step's first sample, and the first that is not made any more.
    End(u64, u64),
    /// From rank 0: all is done and saved; whether it was stopped.
    Finished(bool),
    /// From rank 0: this rank is gone.
    Lost(usize),
}

/// Who comes, and how it was started.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Of the program.
    pub version: String,
    /// Its rank.
    pub rank: usize,
    /// Everything that decides the result.
    pub options: Vec<(String, String)>,
    /// Where a trainer takes features.
    pub features_port: u16,
}

/// What everybody must know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Steps done before.
    pub step: u32,
    /// Who trains on what.
    pub shares: Shares,
    /// NCCL's.
    pub unique_id: Vec<u8>,
    /// Where each trainer takes features: its host (none: that of rank 0), its port.
    pub trainers: Vec<(Option<String>, u16)>,
}

/// One connection. Messages may be sent from several threads; one reads.
pub struct Link {
    reading: TcpStream,
    writing: Mutex<TcpStream>,
}

impl Link {
    /// Over an open connection.
    pub fn over(stream: TcpStream) -> Result<Self> {
        let fail = |error: std::io::Error| Error::new(format!("cannot set up a connection: {error}"));
        // Messages are small and somebody waits for each.
        stream.set_nodelay(true).map_err(fail)?;
        // A host that is gone says nothing: the kernel asks for us.
        rustix::net::sockopt::set_socket_keepalive(&stream, true).map_err(|error| fail(error.into()))?;
        rustix::net::sockopt::set_tcp_keepidle(&stream, Duration::from_secs(30))
            .map_err(|error| fail(error.into()))?;
        Ok(Link { writing: Mutex::new(stream.try_clone().map_err(fail)?), reading: stream })
    }

    /// Sends one message.
    pub fn send(&self, message: &impl Serialize) -> std::io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let mut bytes = (text.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&text);
        self.writing.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes)
    }

    /// The next message.
    pub fn receive<M: DeserializeOwned>(&self) -> std::io::Result<M> {
        let mut length = [0; 4];
        (&self.reading).read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > LONGEST {
            return Err(std::io::Error::other("it does not speak our protocol"));
        }
        let mut text = vec![0; length];
        (&self.reading).read_exact(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// The connection itself, for what is no message.
    pub fn stream(&self) -> &TcpStream {
        &self.reading
    }

    /// How long [`Link::receive`] waits; none: for ever.
    pub fn set_patience(&self, patience: Option<Duration>) -> std::io::Result<()> {
        self.reading.set_read_timeout(patience)
    }
}

/// Connects to an address that may not listen yet, until `deadline`.
pub fn connect(host: &str, port: u16, deadline: Instant) -> Result<TcpStream> {
    loop {
        let addresses = (host, port).to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>);
        let error = match addresses.as_deref().map(TcpStream::connect) {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error.to_string(),
            Err(error) => format!("the name cannot be resolved: {error}"),
        };
        if Instant::now() >= deadline {
            return Err(Error::new(format!("cannot reach {host}:{port}: {error}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
