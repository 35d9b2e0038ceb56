//! How features travel from a rollout to a trainer: one connection per pair, with as many slots as the trainer grants.
//!
//! A slot holds one sample. Where both ends are on one host the slots lie in shared memory and the connection only says which one is
//! full; else the sample follows in the connection. A slot that the trainer has emptied is said back on the same connection, and a
//! rollout without a free slot waits: that is the back-pressure.

use super::link::{Link, connect};
use super::shared_memory::SharedMemory;
use crate::error::{Error, Result};
use crate::rollout::{Features, Sample};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// `--transport`: how features travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Shared memory where both ends are on one host, else TCP
    Auto,
    /// TCP only
    Tcp,
}

/// Sizes of every sample of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleShape {
    /// Tokens.
    pub sequence: usize,
    /// Width of the hidden states, T*H.
    pub width: usize,
}

impl SampleShape {
    /// Bytes of one sample: ids, mask, hidden states, four bytes each.
    pub fn bytes(self) -> usize {
        4 * self.sequence * (2 + self.width)
    }

    fn write(self, features: &Features, into: &mut [u8]) {
        let words = into.as_chunks_mut::<4>().0;
        let (ids, rest) = words.split_at_mut(self.sequence);
        let (mask, hidden) = rest.split_at_mut(self.sequence);
        ids.iter_mut().zip(&features.input_ids).for_each(|(to, from)| *to = from.to_le_bytes());
        mask.iter_mut().zip(&features.loss_mask).for_each(|(to, from)| *to = from.to_le_bytes());
        hidden.iter_mut().zip(&features.hidden_states).for_each(|(to, from)| *to = from.to_le_bytes());
    }

    fn read(self, sample: u64, from: &[u8]) -> Features {
        let words = from.as_chunks::<4>().0;
        let (ids, rest) = words.split_at(self.sequence);
        let (mask, hidden) = rest.split_at(self.sequence);
        Features {
            sample,
            input_ids: ids.iter().map(|&word| i32::from_le_bytes(word)).collect(),
            loss_mask: mask.iter().map(|&word| f32::from_le_bytes(word)).collect(),
            hidden_states: hidden.iter().map(|&word| f32::from_le_bytes(word)).collect(),
        }
    }
}

/// First words of a rollout.
#[derive(Serialize, Deserialize)]
struct Offer {
    rollout: usize,
    shape: SampleShape,
}

/// What the trainer grants: slots, and where they lie if the rollout is on the same host.
#[derive(Serialize, Deserialize)]
struct Grant {
    slots: usize,
    memory: Option<Place>,
}

/// Where shared memory is found.
#[derive(Serialize, Deserialize)]
struct Place {
    pid: u32,
    descriptor: i32,
    token: Vec<u8>,
}

/// Whether the rollout found it.
#[derive(Serialize, Deserialize)]
struct Answer {
    shared: bool,
}

/// Before each sample: its number, its slot, whether it is of the last step.
const FRAME: usize = 16;

fn frame(sample: u64, slot: u32, last: bool) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..8].copy_from_slice(&sample.to_le_bytes());
    frame[8..12].copy_from_slice(&slot.to_le_bytes());
    frame[12] = u8::from(last);
    frame
}

/// The rollout's end.
pub struct Outlet {
    stream: TcpStream,
    shape: SampleShape,
    slots: usize,
    free: VecDeque<u32>,
    memory: Option<SharedMemory>,
    /// Where a sample is put together for the connection.
    buffer: Vec<u8>,
}

impl Outlet {
    /// Connects rollout `rollout` to the trainer that takes features at `host:port`.
    pub fn open(
        host: &str,
        port: u16,
        rollout: usize,
        shape: SampleShape,
        deadline: Instant,
    ) -> Result<Self> {
        let link = Link::over(connect(host, port, deadline)?)?;
        let fail =
            |error: std::io::Error| Error::new(format!("the trainer at {host}:{port} is gone: {error}"));
        link.send(&Offer { rollout, shape }).map_err(fail)?;
        let grant: Grant = link.receive().map_err(fail)?;
        let memory = grant.memory.and_then(|place| {
            SharedMemory::open(place.pid, place.descriptor, &place.token, grant.slots, shape.bytes())
        });
        link.send(&Answer { shared: memory.is_some() }).map_err(fail)?;
        let stream = link.stream().try_clone().map_err(fail)?;
        let buffer = if memory.is_some() { Vec::new() } else { vec![0; shape.bytes()] };
        Ok(Outlet {
            stream,
            shape,
            slots: grant.slots,
            free: (0..grant.slots as u32).collect(),
            memory,
            buffer,
        })
    }

    /// Sends one sample; waits for a free slot.
    pub fn send(&mut self, sample: &Sample) -> std::io::Result<()> {
        let slot = match self.free.pop_front() {
            Some(slot) => slot,
            None => self.wait_for_slot()?,
        };
        let head = frame(sample.features.sample, slot, sample.last);
        match &mut self.memory {
            Some(memory) => {
                let place = memory
                    .slot_mut(slot as usize)
                    .ok_or_else(|| std::io::Error::other(format!("it gave back a slot {slot}")))?;
                self.shape.write(&sample.features, place);
                self.stream.write_all(&head)
            }
            None => {
                self.shape.write(&sample.features, &mut self.buffer);
                self.stream.write_all(&head)?;
                self.stream.write_all(&self.buffer)
            }
        }
    }

    fn wait_for_slot(&mut self) -> std::io::Result<u32> {
        let mut emptied = [0; 4];
        self.stream.read_exact(&mut emptied)?;
        Ok(u32::from_le_bytes(emptied))
    }

    /// Waits until the trainer has taken everything: a connection that is closed earlier may lose what is on its way.
    pub fn drain(&mut self) -> std::io::Result<()> {
        while self.free.len() < self.slots {
            let slot = self.wait_for_slot()?;
            self.free.push_back(slot);
        }
        Ok(())
    }

    /// Whether features go through shared memory.
    pub fn is_shared(&self) -> bool {
        self.memory.is_some()
    }
}

/// The trainer's end of one connection.
struct Connection {
    stream: TcpStream,
    memory: Option<SharedMemory>,
    buffer: Vec<u8>,
}

/// The trainer's ends of all connections, by rollout.
pub struct Inlet {
    connections: Vec<Connection>,
    shape: SampleShape,
}

impl Inlet {
    /// Waits for every rollout, and grants each `slots` slots.
    pub fn accept(
        listener: &TcpListener,
        rollouts: usize,
        slots: usize,
        shape: SampleShape,
        transport: Transport,
    ) -> Result<Self> {
        let fail = |error: std::io::Error| Error::new(format!("a rollout did not connect: {error}"));
        let mut connections: Vec<Option<Connection>> = (0..rollouts).map(|_| None).collect();
        while connections.iter().any(Option::is_none) {
            let link = Link::over(listener.accept().map_err(fail)?.0)?;
            // A stranger that says nothing we know is turned away.
            let Ok(offer) = link.receive::<Offer>() else { continue };
            if offer.shape != shape {
                return Err(Error::new(format!(
                    "rollout {} makes samples of {:?}, this trainer takes {shape:?}; start both with the same options",
                    offer.rollout, offer.shape
                )));
            }
            let Some(place @ None) = connections.get_mut(offer.rollout) else { continue };
            let memory = match transport {
                Transport::Tcp => None,
                // Without it (a kernel without memfd, a limit) the connection carries the samples.
                Transport::Auto => SharedMemory::create(slots, shape.bytes()).ok(),
            };
            let offered = memory.as_ref().map(|memory| Place {
                pid: std::process::id(),
                descriptor: memory.descriptor(),
                token: memory.token(),
            });
            link.send(&Grant { slots, memory: offered }).map_err(fail)?;
            let answer: Answer = link.receive().map_err(fail)?;
            let memory = memory.filter(|_| answer.shared);
            let buffer = if memory.is_some() { Vec::new() } else { vec![0; shape.bytes()] };
            let stream = link.stream().try_clone().map_err(fail)?;
            *place = Some(Connection { stream, memory, buffer });
        }
        Ok(Inlet { connections: connections.into_iter().flatten().collect(), shape })
    }

    /// The next sample of `rollout`, which must be `sample`.
    pub fn receive(&mut self, rollout: usize, sample: u64) -> Result<Sample> {
        let Connection { stream, memory, buffer } = &mut self.connections[rollout];
        let fail = |error: std::io::Error| Error::new(format!("rollout {rollout} is gone: {error}"));
        let mut head = [0; FRAME];
        stream.read_exact(&mut head).map_err(fail)?;
        let word = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
        let found = u64::from(u32::from_le_bytes(word(0))) | u64::from(u32::from_le_bytes(word(4))) << 32;
        let (slot, last) = (u32::from_le_bytes(word(8)), head[12] != 0);
        if found != sample {
            return Err(Error::new(format!("rollout {rollout} sent sample {found}, expected {sample}")));
        }
        let features = match memory {
            Some(memory) => {
                let place = memory
                    .slot(slot as usize)
                    .ok_or_else(|| Error::new(format!("rollout {rollout} filled a slot {slot}")))?;
                self.shape.read(sample, place)
            }
            None => {
                stream.read_exact(buffer).map_err(fail)?;
                self.shape.read(sample, buffer)
            }
        };
        stream.write_all(&slot.to_le_bytes()).map_err(fail)?;
        Ok(Sample { features, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const SHAPE: SampleShape = SampleShape { sequence: 3, width: 2 };

    fn sample(number: u64) -> Sample {
        let features = Features {
            sample: number,
            input_ids: vec![number as i32, -1, i32::MAX],
            hidden_states: (0..6).map(|i| number as f32 + i as f32 / 8.0).collect(),
            loss_mask: vec![1.0, 0.0, 1.0],
        };
        Sample { features, last: number == 4 }
    }

    fn carries(transport: Transport, shared: bool) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sent, progress) = channel();
        let rollout = std::thread::spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut outlet = Outlet::open("127.0.0.1", port, 0, SHAPE, deadline).unwrap();
            for number in 0..5 {
                outlet.send(&sample(number)).unwrap();
                sent.send(number).unwrap();
            }
            outlet.drain().unwrap();
            outlet.is_shared()
        });
        let mut inlet = Inlet::accept(&listener, 1, 2, SHAPE, transport).unwrap();
        // Two slots: the third sample waits until one was taken.
        assert_eq!([progress.recv(), progress.recv()], [Ok(0), Ok(1)]);
        assert!(progress.try_recv().is_err());
        for number in 0..5 {
            assert_eq!(inlet.receive(0, number).unwrap(), sample(number));
        }
        assert_eq!(rollout.join().unwrap(), shared);
        assert!(inlet.receive(0, 5).unwrap_err().to_string().contains("rollout 0 is gone"));
    }

    #[test]
    fn samples_arrive_whole_and_no_more_than_there_are_slots() {
        carries(Transport::Auto, true);
        carries(Transport::Tcp, false);
    }
}
