//! From features on the host to batches on the device.
//!
//! In: the rollout's queue. Out: micro-batches in device memory, in order. By default a loader thread fills page-locked
//! memory and uploads on a stream of its own, while earlier steps run; the compute stream waits for the upload on the device,
//! never the host. With `--waits batch-copy` the training thread copies from pageable memory instead.
//!
//! A slot (page-locked memory and the device memory it is copied to) goes round: loader, training thread, and, once the
//! device has finished the step, back to the loader through a host function of the stream. Nobody waits or polls for that.

use crate::device::{Device, Event, Pinned, Stream};
use crate::error::{Error, Result};
use crate::model::{Batch, Config};
use crate::nvtx;
use crate::rollout::Sample;
use crate::waits::batch_copy;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Sizes of a micro-batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchShape {
    /// Sequences.
    pub batch: usize,
    /// Tokens per sequence, S.
    pub sequence: usize,
    /// Width of the hidden states, T*H.
    pub width: usize,
}

/// A micro-batch in device memory, ready for the compute stream.
pub struct Loaded {
    slot: usize,
    /// Ids of its samples.
    pub samples: Vec<u64>,
    /// The run ends behind the step that trains on it.
    pub last: bool,
}

/// What delivers micro-batches to the training thread.
pub struct Feed {
    slots: Arc<[Slot]>,
    kind: Kind,
}

enum Kind {
    Staged { ready: Receiver<Result<Loaded>>, free: Sender<usize>, thread: JoinHandle<()> },
    Plain { samples: Receiver<Result<Sample>>, shape: BatchShape },
}

/// Device memory of one micro-batch, and the event behind its upload.
struct Slot {
    batch: Batch,
    uploaded: Event,
}

fn make_slots(
    device: &Arc<Device>,
    config: &Config,
    shape: BatchShape,
    count: usize,
) -> Result<Arc<[Slot]>, crate::device::Error> {
    (0..count)
        .map(|_| {
            Ok(Slot {
                batch: Batch::zeros(device, config, shape.batch, shape.sequence)?,
                uploaded: Event::new(device)?,
            })
        })
        .collect()
}

/// A micro-batch on the host.
struct HostBatch {
    rows: Vec<Sample>,
}

impl HostBatch {
    fn collect(samples: &Receiver<Result<Sample>>, shape: BatchShape) -> Result<Self> {
        let rows = (0..shape.batch)
            .map(|_| samples.recv().map_err(|_| Error::new("the rollout worker ended early"))?)
            .collect::<Result<Vec<_>>>()?;
        Ok(HostBatch { rows })
    }

    /// This batch in the device memory of a slot.
    fn loaded(&self, slot: usize) -> Loaded {
        let samples = self.rows.iter().map(|row| row.features.sample).collect();
        Loaded { slot, samples, last: self.rows.iter().any(|row| row.last) }
    }

    /// Writes the tensors of all sequences one behind the other.
    fn fill(&self, input_ids: &mut [i32], hidden_states: &mut [f32], loss_mask: &mut [f32]) {
        let n = self.rows.len();
        let (s, sw) = (input_ids.len() / n, hidden_states.len() / n);
        for (i, row) in self.rows.iter().enumerate() {
            let features = &row.features;
            input_ids[i * s..(i + 1) * s].copy_from_slice(&features.input_ids);
            hidden_states[i * sw..(i + 1) * sw].copy_from_slice(&features.hidden_states);
            loss_mask[i * s..(i + 1) * s].copy_from_slice(&features.loss_mask);
        }
    }
}

/// Page-locked memory of one slot.
struct Staging {
    input_ids: Pinned<i32>,
    hidden_states: Pinned<f32>,
    loss_mask: Pinned<f32>,
}

impl Staging {
    fn new(device: &Arc<Device>, shape: BatchShape) -> Result<Self, crate::device::Error> {
        let rows = shape.batch * shape.sequence;
        Ok(Staging {
            input_ids: Pinned::zeros(device, rows)?,
            hidden_states: Pinned::zeros(device, rows * shape.width)?,
            loss_mask: Pinned::zeros(device, rows)?,
        })
    }
}

/// The loader thread's state.
struct Loader {
    stream: Stream,
    slots: Arc<[Slot]>,
    staging: Vec<Staging>,
    samples: Receiver<Result<Sample>>,
    free_slots: Receiver<usize>,
    shape: BatchShape,
}

impl Loader {
    fn run(mut self, ready: &Sender<Result<Loaded>>) {
        if let Err(error) = self.stream.device().bind_to_thread() {
            ready.send(Err(error.into())).unwrap_or_default();
            return;
        }
        // Ends when the training thread has dropped its sender, and no step is left that holds another.
        while let Ok(slot) = self.free_slots.recv() {
            let loaded = self.load(slot);
            let failed = loaded.is_err();
            // A send fails when training has ended.
            if ready.send(loaded).is_err() || failed {
                return;
            }
        }
    }

    /// Fills a slot that the device has finished with, and issues its upload.
    fn load(&mut self, index: usize) -> Result<Loaded> {
        let host = HostBatch::collect(&self.samples, self.shape)?;
        let _range = nvtx::range(c"stage");
        let (slot, staging) = (&self.slots[index], &mut self.staging[index]);
        host.fill(
            staging.input_ids.as_mut_slice(),
            staging.hidden_states.as_mut_slice(),
            staging.loss_mask.as_mut_slice(),
        );
        self.stream.upload(slot.batch.input_ids.view(), &staging.input_ids)?;
        self.stream.upload(slot.batch.hidden_states.view(), &staging.hidden_states)?;
        self.stream.upload(slot.batch.loss_mask.view(), &staging.loss_mask)?;
        self.stream.record(&slot.uploaded)?;
        Ok(host.loaded(index))
    }
}

impl Feed {
    /// Starts the loader thread with `slots` micro-batches in flight.
    pub fn staged(
        device: &Arc<Device>,
        config: &Config,
        shape: BatchShape,
        slots: usize,
        samples: Receiver<Result<Sample>>,
    ) -> Result<Self> {
        let slots = make_slots(device, config, shape, slots)?;
        let staging = (0..slots.len())
            .map(|_| Staging::new(device, shape))
            .collect::<Result<Vec<_>, crate::device::Error>>()?;
        let (free, free_slots) = channel();
        let (ready_sender, ready) = channel();
        (0..slots.len()).for_each(|slot| free.send(slot).unwrap_or_default());
        let loader = Loader {
            stream: Stream::new(device)?,
            slots: slots.clone(),
            staging,
            samples,
            free_slots,
            shape,
        };
        let thread = std::thread::Builder::new()
            .name("loader".to_owned())
            .spawn(move || loader.run(&ready_sender))
            .map_err(|error| Error::new(format!("cannot start the loader thread: {error}")))?;
        Ok(Feed { slots, kind: Kind::Staged { ready, free, thread } })
    }

    /// Batches copied by the training thread itself. One slot is enough: the copies are ordered behind the step before.
    pub fn plain(
        device: &Arc<Device>,
        config: &Config,
        shape: BatchShape,
        samples: Receiver<Result<Sample>>,
    ) -> Result<Self> {
        Ok(Feed { slots: make_slots(device, config, shape, 1)?, kind: Kind::Plain { samples, shape } })
    }

    /// The next micro-batch; work issued on `stream` from here on sees it. Staged: the host is held up only if the loader has
    /// nothing ready.
    pub fn next(&mut self, stream: &Stream) -> Result<Loaded> {
        match &mut self.kind {
            Kind::Staged { ready, .. } => {
                let loaded = ready.recv().map_err(|_| Error::new("the loader thread ended early"))??;
                stream.wait(&self.slots[loaded.slot].uploaded)?;
                Ok(loaded)
            }
            Kind::Plain { samples, shape } => {
                let host = HostBatch::collect(samples, *shape)?;
                let (rows, width) = (shape.batch * shape.sequence, shape.width);
                let (mut ids, mut hidden, mut mask) =
                    (vec![0; rows], vec![0.0; rows * width], vec![0.0; rows]);
                host.fill(&mut ids, &mut hidden, &mut mask);
                batch_copy::copy(stream, &self.slots[0].batch, &ids, &hidden, &mask)?;
                Ok(host.loaded(0))
            }
        }
    }

    /// The device memory of a micro-batch.
    pub fn batch(&self, loaded: &Loaded) -> &Batch {
        &self.slots[loaded.slot].batch
    }

    /// Which device memory the micro-batches of a step are in.
    pub fn slots(used: &[Loaded]) -> Vec<usize> {
        used.iter().map(|loaded| loaded.slot).collect()
    }

    /// What gives the slots of a finished step back; `None` where the training thread copies, as stream order protects it.
    /// Call the result from a host function behind the last use of the batches.
    pub fn release(&self, used: &[Loaded]) -> Option<impl FnOnce() + Send + 'static> {
        let Kind::Staged { free, .. } = &self.kind else { return None };
        let (free, slots) = (free.clone(), Self::slots(used));
        // The loader is gone only when training has ended, and then nobody needs the slot.
        Some(move || slots.into_iter().for_each(|slot| free.send(slot).unwrap_or_default()))
    }

    /// Ends the loader. The stream must have run all host functions.
    pub fn finish(self) -> Result<()> {
        let Kind::Staged { ready, free, thread } = self.kind else { return Ok(()) };
        drop((ready, free));
        thread.join().map_err(|_| Error::new("the loader thread panicked"))
    }
}
