//! NCCL on the emulated device as a program uses it: through cudarc's bindings, with a process per rank.

#![allow(unsafe_code)] // cudarc's NCCL takes raw pointers

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DevicePtrMut};
use cudarc::nccl::{result as nccl, sys};

const NAME: &str = "ranks_in_processes_add_up_and_a_killed_one_is_an_error_on_the_other";

/// The test's own binary as one rank, its stdin and stdout piped.
fn start(rank: &str, folder: &std::path::Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env("LD_LIBRARY_PATH", common::search_path(folder))
        .env("TEST_RANK", rank)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The next line that a rank says about `what`.
fn said(lines: &mut impl Iterator<Item = std::io::Result<String>>, what: &str) -> String {
    let start = format!("{what}=");
    lines
        .map(Result::unwrap)
        .find_map(|line| line.split_once(&start).map(|(_, rest)| rest.to_owned()))
        .unwrap_or_else(|| panic!("it ended without saying {what}"))
}

fn sum(stream: &Arc<CudaStream>, comm: sys::ncclComm_t, values: &[f32]) -> Result<Vec<f32>, String> {
    let text = |error: cudarc::driver::DriverError| error.to_string();
    let mut memory = stream.clone_htod(values).map_err(text)?;
    {
        let (at, _record) = memory.device_ptr_mut(stream);
        let at = at as *mut std::ffi::c_void;
        let (number, operator) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
        // SAFETY: memory of that many floats, a communicator and a stream that live.
        unsafe { nccl::all_reduce(at, at, values.len(), number, operator, comm, stream.cu_stream().cast()) }
            .map_err(|error| format!("{error:?}"))?;
    }
    stream.clone_dtoh(&memory).map_err(text)
}

fn rank(rank: i32) {
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let mut id = sys::ncclUniqueId { internal: [0; 128] };
    if rank == 0 {
        id = nccl::get_uniqueid().unwrap();
        println!("id={}", id.internal.map(|byte| format!("{:02x}", byte as u8)).concat());
    } else {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        for (at, byte) in id.internal.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&line[2 * at..2 * at + 2], 16).unwrap() as _;
        }
    }
    let mut comm = std::ptr::null_mut();
    // SAFETY: the communicator is written before it is used.
    unsafe { nccl::comm_init_rank(&mut comm, 2, id, rank) }.unwrap();
    println!("sum={:?}", sum(&stream, comm, &[1.0, rank as f32]));
    if rank == 0 {
        println!("then={:?}", sum(&stream, comm, &[1.0]));
        let mut error = sys::ncclResult_t::ncclSuccess;
        // SAFETY: writes one code.
        unsafe { sys::ncclCommGetAsyncError(comm, &mut error) }.result().unwrap();
        println!("error={error:?}");
        // Memory can't be freed in a context that is stuck with an error; the process ends here.
        std::process::exit(0);
    }
    // Until it is killed.
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn ranks_in_processes_add_up_and_a_killed_one_is_an_error_on_the_other() {
    if let Ok(number) = std::env::var("TEST_RANK") {
        return rank(number.parse().unwrap());
    }
    let folder = common::library_folder();
    let (mut first, mut second) = (start("0", folder.path()), start("1", folder.path()));
    let mut of_first = BufReader::new(first.stdout.take().unwrap()).lines();
    let mut of_second = BufReader::new(second.stdout.take().unwrap()).lines();
    let id = said(&mut of_first, "id");
    writeln!(second.stdin.as_ref().unwrap(), "{id}").unwrap();
    assert_eq!(said(&mut of_first, "sum"), "Ok([2.0, 1.0])");
    assert_eq!(said(&mut of_second, "sum"), "Ok([2.0, 1.0])");
    second.kill().unwrap();
    second.wait().unwrap();
    let then = said(&mut of_first, "then");
    assert!(then.contains("CUDA_ERROR_LAUNCH_FAILED"), "{then}");
    assert_eq!(said(&mut of_first, "error"), "ncclRemoteError");
    first.wait().unwrap();
}
