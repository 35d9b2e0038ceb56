//! Gives the shared object the name that programs ask the loader for, and keeps it mapped once loaded: its stream
//! workers run code in it until the process ends.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in ["-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete", "-Wl,-Bsymbolic"] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
