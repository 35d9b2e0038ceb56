//! Marks the shared object as never to be unloaded: NVTX closes a library whose answer it dislikes, and callbacks
//! may still be under way in threads of the program then.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
