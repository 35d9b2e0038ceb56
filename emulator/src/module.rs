//! Modules, libraries, kernels and functions: names. The device code in an image is never run; kernels run by the
//! host implementations that the program registered.
//!
//! PTX says which kernels and variables it has, so an unknown name in it is `NOT_FOUND`. A binary image is taken at
//! its word: any name is a kernel of it.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use crate::args::{In, Memory, Out, Text};
use crate::blocking::{self, Call};
use crate::context::current;
use crate::device;
use crate::error::{Error, Result};
use crate::handles::{self, Table, lock};
use crate::heap::{self, Origin};
use crate::kernels;

/// What was loaded; a library is a module that any context may use.
pub struct Module {
    handle: usize,
    context: u32,
    /// What the image declares; `None` for a binary image.
    declared: Option<Declared>,
    functions: Mutex<HashMap<String, Arc<Function>>>,
    globals: Mutex<HashMap<String, (u64, usize)>>,
}

/// A kernel of a module. Its handle serves as `CUfunction` and `CUkernel`.
pub struct Function {
    pub handle: usize,
    pub name: Arc<str>,
    pub c_name: CString,
    module: usize,
    context: u32,
    /// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
    pub max_dynamic_shared: AtomicI32,
    carveout: AtomicI32,
}

/// What a PTX image declares.
#[derive(Debug, Default, PartialEq, Eq)]
struct Declared {
    kernels: Vec<String>,
    /// Name, bytes, and whether it starts with values.
    variables: Vec<(String, usize, bool)>,
}

static MODULES: Table<Module> = Table::new();
static FUNCTIONS_BY_HANDLE: Table<Function> = Table::new();

/// Shared memory that a block may have without opting in, and with (bytes, H100).
pub const SHARED_DEFAULT: i32 = 49_152;
pub const SHARED_OPT_IN: i32 = 232_448;

entry_points! {
    cuModuleLoad(module: Out<usize>, path: Text) => load_file(module, path);
    cuModuleLoadData(module: Out<usize>, image: Memory) => load(module, image, false);
    cuModuleLoadDataEx(module: Out<usize>, image: Memory, n: u32, options: In<u32>, values: In<Memory>)
        => log_options(n, options, values).and_then(|()| load(module, image, false));
    cuModuleLoadFatBinary(module: Out<usize>, image: Memory) => load(module, image, false);
    cuModuleUnload(module: usize) => unload(module);
    cuModuleGetFunction(out: Out<usize>, module: usize, name: Text) => get_function(out, module, name);
    cuModuleGetFunctionCount(count: Out<u32>, module: usize) => function_count(count, module);
    cuModuleEnumerateFunctions(out: Out<usize>, n: u32, module: usize) => enumerate(out, n, module);
    cuModuleGetGlobal_v2(dptr: Out<u64>, bytes: Out<usize>, module: usize, name: Text) => get_global(dptr, bytes, module, name);
    cuModuleGetLoadingMode(mode: Out<u32>) => mode.set(2); // lazy

    cuLibraryLoadData(library: Out<usize>, code: Memory, jit: In<u32>, jit_values: In<Memory>, n_jit: u32, options: In<u32>, values: In<Memory>, n: u32)
        => log_options(n_jit, jit, jit_values).and_then(|()| load(library, code, n > 0 && options.is_null() && values.is_null()));
    cuLibraryLoadFromFile(library: Out<usize>, path: Text, jit: In<u32>, jit_values: In<Memory>, n_jit: u32, options: In<u32>, values: In<Memory>, n: u32)
        => if n > 0 && (options.is_null() || values.is_null()) { Err(Error::INVALID_VALUE) } else { log_options(n_jit, jit, jit_values).and_then(|()| load_file(library, path)) };
    cuLibraryUnload(library: usize) => unload(library);
    cuLibraryGetKernel(out: Out<usize>, library: usize, name: Text) => get_function(out, library, name);
    cuLibraryGetModule(out: Out<usize>, library: usize) => module(library).and_then(|m| out.set(m.handle));
    cuLibraryGetGlobal(dptr: Out<u64>, bytes: Out<usize>, library: usize, name: Text) => get_global(dptr, bytes, library, name);
    cuLibraryGetKernelCount(count: Out<u32>, library: usize) => function_count(count, library);
    cuLibraryEnumerateKernels(out: Out<usize>, n: u32, library: usize) => enumerate(out, n, library);
    cuKernelGetFunction(out: Out<usize>, kernel: usize) => function(kernel).and_then(|f| out.set(f.handle));
    cuKernelGetLibrary(out: Out<usize>, kernel: usize) => function(kernel).and_then(|f| out.set(f.module));
    cuKernelGetName(name: Out<*const c_char>, kernel: usize) => function(kernel).and_then(|f| name.set(f.c_name.as_ptr()));
    cuKernelGetAttribute(pi: Out<i32>, attrib: u32, kernel: usize, dev: i32)
        => device::check(dev).and_then(|()| get_attribute(pi, attrib, kernel));
    cuKernelSetAttribute(attrib: u32, value: i32, kernel: usize, dev: i32)
        => device::check(dev).and_then(|()| set_attribute(kernel, attrib, value));
    cuKernelSetCacheConfig(kernel: usize, config: u32, dev: i32) => device::check(dev).and_then(|()| cache_config(kernel, config));
    cuKernelGetParamInfo(kernel: usize, index: usize, offset: Out<usize>, size: Out<usize>) => param_info(kernel, index, offset, size);

    cuFuncGetAttribute(pi: Out<i32>, attrib: u32, hfunc: usize) => get_attribute(pi, attrib, hfunc);
    cuFuncSetAttribute(hfunc: usize, attrib: u32, value: i32) => set_attribute(hfunc, attrib, value);
    cuFuncSetCacheConfig(hfunc: usize, config: u32) => cache_config(hfunc, config);
    cuFuncSetSharedMemConfig(hfunc: usize, config: u32)
        => if config <= 2 { function(hfunc).map(drop) } else { Err(Error::INVALID_VALUE) };
    cuFuncGetModule(out: Out<usize>, hfunc: usize) => function(hfunc).and_then(|f| out.set(f.module));
    cuFuncGetName(name: Out<*const c_char>, hfunc: usize) => function(hfunc).and_then(|f| name.set(f.c_name.as_ptr()));
    cuFuncGetParamInfo(hfunc: usize, index: usize, offset: Out<usize>, size: Out<usize>) => param_info(hfunc, index, offset, size);
    cuFuncIsLoaded(state: Out<u32>, hfunc: usize) => function(hfunc).and_then(|_| state.set(1));
    cuFuncLoad(hfunc: usize) => function(hfunc).map(drop);

    cuOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<i32>, func: usize, block: i32, shared: usize) => occupancy(out, func, block, shared);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: Out<i32>, func: usize, block: i32, shared: usize, flags: u32)
        => if flags <= 1 { occupancy(out, func, block, shared) } else { Err(Error::INVALID_VALUE) };
    cuOccupancyMaxPotentialBlockSize(min_grid: Out<i32>, block: Out<i32>, func: usize, shared_of: SharedOfBlock, shared: usize, limit: i32)
        => potential_block(min_grid, block, func, shared_of, shared, limit);
    cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid: Out<i32>, block: Out<i32>, func: usize, shared_of: SharedOfBlock, shared: usize, limit: i32, flags: u32)
        => if flags <= 1 { potential_block(min_grid, block, func, shared_of, shared, limit) } else { Err(Error::INVALID_VALUE) };
    cuOccupancyAvailableDynamicSMemPerBlock(out: Out<usize>, func: usize, blocks: i32, block: i32) => available_shared(out, func, blocks, block);
}

type SharedOfBlock = Option<extern "C" fn(i32) -> usize>;

/// The module behind a handle.
fn module(handle: usize) -> Result<Arc<Module>> {
    MODULES.get(handle).ok_or(Error::INVALID_HANDLE)
}

/// The function behind a handle.
pub fn function(handle: usize) -> Result<Arc<Function>> {
    FUNCTIONS_BY_HANDLE.get(handle).ok_or(Error::INVALID_HANDLE)
}

/// Drops what a context had loaded.
pub fn forget_context(context: u32) {
    MODULES.remove_where(|m| m.context == context);
    FUNCTIONS_BY_HANDLE.remove_where(|f| f.context == context);
}

fn load_file(out: Out<usize>, path: Text) -> Result {
    let bytes = std::fs::read(path.get()?).map_err(|_| Error::FILE_NOT_FOUND)?;
    let declared = String::from_utf8(bytes).ok().filter(|t| t.contains(".version")).map(|t| declared(&t));
    add(out, declared)
}

fn load(out: Out<usize>, image: Memory, malformed: bool) -> Result {
    out.check()?;
    if image.is_null() || malformed {
        return Err(Error::INVALID_VALUE);
    }
    add(out, image_text(image).map(|t| declared(&t)))
}

fn add(out: Out<usize>, declared: Option<Declared>) -> Result {
    out.check()?;
    let context = current()?;
    let handle = handles::fresh();
    let module = Module {
        handle,
        context: context.uid,
        declared,
        functions: Mutex::default(),
        globals: Mutex::default(),
    };
    MODULES.insert(handle, Arc::new(module));
    blocking::rule(Call::ModuleLoad).wait(&context, None, None);
    out.set(handle)
}

/// The image as PTX, or `None` for a binary one.
fn image_text(image: *const c_void) -> Option<String> {
    // SAFETY: the caller passes an image; every kind is at least four bytes long (an empty text ends the first).
    let first = unsafe { image.cast::<u8>().read() };
    if !(first.is_ascii_graphic() || first.is_ascii_whitespace()) || first == b'P' {
        return None; // ELF, fat binary or its wrapper ('P' starts a fat binary: 0xBA55ED50)
    }
    // SAFETY: a text image is NUL-terminated by contract.
    let text = unsafe { CStr::from_ptr(image.cast()) }.to_str().ok()?;
    text.contains(".version").then(|| text.to_owned())
}

/// Kernels and variables that a PTX text declares.
fn declared(ptx: &str) -> Declared {
    let mut found = Declared::default();
    // Directives of the head end with the line, not with a semicolon.
    let head = [".version", ".target", ".address_size", ".file", ".loc"];
    let lines = ptx.lines().map(|l| l.split("//").next().unwrap_or("").trim());
    let without_comments =
        lines.filter(|l| !head.iter().any(|h| l.starts_with(h))).collect::<Vec<_>>().join("\n");
    let mut words = without_comments.split(|c: char| c.is_whitespace() || c == '(').filter(|w| !w.is_empty());
    while let Some(word) = words.next() {
        if word == ".entry" {
            found.kernels.extend(words.next().map(str::to_owned));
        }
    }
    for statement in without_comments.split(';') {
        let statement = statement.rsplit(['{', '}']).next().unwrap_or(statement).trim();
        found.variables.extend(variable(statement));
    }
    found
}

/// A `.global` or `.const` declaration at module level: `.visible .global .align 4 .b8 name[16]`.
fn variable(statement: &str) -> Option<(String, usize, bool)> {
    let mut words = statement.split_whitespace().peekable();
    let mut width = None;
    let mut storage = false;
    while let Some(word) = words.next_if(|w| w.starts_with('.')) {
        match word {
            ".global" | ".const" => storage = true,
            ".align" => {
                words.next();
            }
            ".extern" => return None,
            _ => {
                let digits = word.trim_start_matches(|c: char| !c.is_ascii_digit());
                if let Ok(bits) = digits.parse::<usize>() {
                    width = Some(bits / 8);
                }
            }
        }
    }
    if !storage {
        return None;
    }
    let rest = words.collect::<Vec<_>>().join(" ");
    let (declarator, initial) = rest.split_once('=').map_or((rest.as_str(), false), |(d, _)| (d, true));
    let declarator = declarator.trim();
    let (name, count) = match declarator.split_once('[') {
        Some((name, dims)) => {
            let sizes = dims.split(['[', ']']).map(str::trim).filter(|d| !d.is_empty());
            (name, sizes.map(|d| d.parse::<usize>().unwrap_or(0)).product())
        }
        None => (declarator, 1),
    };
    Some((name.trim().to_owned(), width? * count, initial))
}

/// JIT options are accepted; log buffers are told to be empty.
fn log_options(n: u32, options: In<u32>, values: In<Memory>) -> Result {
    for (at, option) in options.list(n as usize)?.into_iter().enumerate() {
        // CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES and CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES are in/out in the values array.
        if matches!(option, 4 | 6) && !values.is_null() {
            Out(values.0.cast_mut()).set_at(at, std::ptr::null_mut());
        }
    }
    Ok(())
}

fn unload(handle: usize) -> Result {
    let module = MODULES.remove(handle).ok_or(Error::INVALID_HANDLE)?;
    let context = current()?;
    blocking::rule(Call::ModuleUnload).wait(&context, None, None);
    for function in lock(&module.functions).values() {
        FUNCTIONS_BY_HANDLE.remove(function.handle);
    }
    for (base, _) in lock(&module.globals).values() {
        heap::free(*base);
    }
    Ok(())
}

fn get_function(out: Out<usize>, handle: usize, name: Text) -> Result {
    out.check()?;
    let (module, name) = (module(handle)?, name.get()?);
    let known = module.declared.as_ref().is_none_or(|d| d.kernels.contains(&name));
    if !known || name.is_empty() {
        return Err(Error::NOT_FOUND);
    }
    out.set(function_named(&module, name)?.handle)
}

fn function_named(module: &Module, name: String) -> Result<Arc<Function>> {
    let mut functions = lock(&module.functions);
    if let Some(function) = functions.get(&name) {
        return Ok(function.clone());
    }
    let function = Arc::new(Function {
        handle: handles::fresh(),
        name: name.as_str().into(),
        c_name: CString::new(name.as_str()).map_err(|_| Error::INVALID_VALUE)?,
        module: module.handle,
        context: module.context,
        max_dynamic_shared: AtomicI32::new(SHARED_DEFAULT),
        carveout: AtomicI32::new(-1),
    });
    FUNCTIONS_BY_HANDLE.insert(function.handle, function.clone());
    functions.insert(name, function.clone());
    Ok(function)
}

fn function_count(count: Out<u32>, handle: usize) -> Result {
    let module = module(handle)?;
    let declared = module.declared.as_ref().ok_or(Error::NOT_SUPPORTED)?; // a binary image was not read
    count.set(declared.kernels.len() as u32)
}

fn enumerate(out: Out<usize>, n: u32, handle: usize) -> Result {
    out.check()?;
    let module = module(handle)?;
    let declared = module.declared.as_ref().ok_or(Error::NOT_SUPPORTED)?;
    for (at, name) in declared.kernels.iter().take(n as usize).enumerate() {
        out.set_at(at, function_named(&module, name.clone())?.handle);
    }
    Ok(())
}

fn get_global(dptr: Out<u64>, bytes: Out<usize>, handle: usize, name: Text) -> Result {
    if dptr.is_null() && bytes.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let (module, name) = (module(handle)?, name.get()?);
    let declared = module.declared.as_ref().ok_or(Error::NOT_FOUND)?;
    let (_, size, initial) = declared.variables.iter().find(|v| v.0 == name).ok_or(Error::NOT_FOUND)?;
    if *initial || *size == 0 {
        return Err(Error::NOT_SUPPORTED); // initial values are not read from PTX: no answer rather than zeros
    }
    let mut globals = lock(&module.globals);
    let (base, size) = match globals.get(&name) {
        Some(found) => *found,
        None => {
            let made = (heap::allocate(*size, Origin::Alloc, module.context)?.base, *size);
            globals.insert(name, made);
            made
        }
    };
    dptr.set_if_wanted(base);
    bytes.set_if_wanted(size);
    Ok(())
}

fn get_attribute(out: Out<i32>, attrib: u32, handle: usize) -> Result {
    let function = function(handle)?;
    out.set(match attrib {
        0 => 1024,        // threads per block
        1..=3 => 0,       // static shared, constant and local memory
        4 => 32,          // registers
        5 | 6 => 90,      // PTX and binary version
        7 | 10..=15 => 0, // cache mode, clusters
        8 => function.max_dynamic_shared.load(Ordering::Relaxed),
        9 => function.carveout.load(Ordering::Relaxed),
        _ => return Err(Error::INVALID_VALUE),
    })
}

fn set_attribute(handle: usize, attrib: u32, value: i32) -> Result {
    let function = function(handle)?;
    match attrib {
        8 if (0..=SHARED_OPT_IN).contains(&value) => {
            function.max_dynamic_shared.store(value, Ordering::Relaxed)
        }
        9 if (-1..=100).contains(&value) => function.carveout.store(value, Ordering::Relaxed),
        11..=15 if value >= 0 => {}
        _ => return Err(Error::INVALID_VALUE),
    }
    Ok(())
}

fn cache_config(handle: usize, config: u32) -> Result {
    if config <= 3 { function(handle).map(drop) } else { Err(Error::INVALID_VALUE) }
}

fn param_info(handle: usize, index: usize, offset: Out<usize>, size: Out<usize>) -> Result {
    let function = function(handle)?;
    let implementation = kernels::implementation(&function.name).ok_or(Error::NOT_SUPPORTED)?;
    let mut at = 0usize;
    for (i, bytes) in implementation.param_sizes.iter().enumerate() {
        at = at.next_multiple_of(kernels::param_align(*bytes));
        if i == index {
            offset.set(at)?;
            size.set_if_wanted(*bytes);
            return Ok(());
        }
        at += bytes;
    }
    Err(Error::INVALID_VALUE)
}

/// Blocks that fit on a multiprocessor: threads (2048), blocks (32) and shared memory (228 KB, 1 KB reserved each).
fn blocks_per_multiprocessor(block: i32, shared: usize) -> Result<i32> {
    if !(1..=1024).contains(&block) {
        return Err(Error::INVALID_VALUE);
    }
    let threads = (block + 31) / 32 * 32;
    let by_shared = 233_472 / (shared + 1024);
    Ok((2048 / threads).min(32).min(by_shared as i32))
}

fn occupancy(out: Out<i32>, func: usize, block: i32, shared: usize) -> Result {
    function(func)?;
    out.set(blocks_per_multiprocessor(block, shared)?)
}

fn potential_block(
    min_grid: Out<i32>,
    block: Out<i32>,
    func: usize,
    shared_of: SharedOfBlock,
    shared: usize,
    limit: i32,
) -> Result {
    function(func)?;
    min_grid.check()?;
    let limit = if (1..=1024).contains(&limit) { limit } else { 1024 };
    let mut best = (0, 32, 0);
    for size in (1..=limit / 32).map(|warps| warps * 32).chain((limit < 32).then_some(limit)) {
        let shared = shared_of.map_or(shared, |f| f(size));
        let blocks = blocks_per_multiprocessor(size, shared)?;
        if blocks * size >= best.0 {
            best = (blocks * size, size, blocks);
        }
    }
    min_grid.set(best.2 * 132)?;
    block.set(best.1)
}

fn available_shared(out: Out<usize>, func: usize, blocks: i32, block: i32) -> Result {
    function(func)?;
    if blocks < 1 || blocks_per_multiprocessor(block, 0)? < blocks {
        return Err(Error::INVALID_VALUE);
    }
    out.set((233_472 / blocks as usize - 1024).min(SHARED_OPT_IN as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "
        .version 8.0 // .entry commented_out(
        .target sm_90
        .visible .global .align 4 .b8 table[64];
        .const .align 8 .f64 scale;
        .global .f32 start = 0f3F800000;
        .visible .entry add(
            .param .u64 add_param_0
        ) { .reg .b32 r<2>; ret; }
        .entry _Z3mulPf(.param .u64 p) { ret; }
        .func helper(.param .b32 x) { ret; }";

    #[test]
    fn ptx_tells_its_kernels_and_variables() {
        let found = declared(PTX);
        assert_eq!(found.kernels, ["add", "_Z3mulPf"]);
        let variables =
            [("table".to_owned(), 64, false), ("scale".to_owned(), 8, false), ("start".to_owned(), 4, true)];
        assert_eq!(found.variables, variables);
    }

    #[test]
    fn binary_images_are_not_read_as_text() {
        assert_eq!(image_text(b"\x7fELF".as_ptr().cast()), None);
        assert_eq!(image_text(0xBA55_ED50u32.to_le_bytes().as_ptr().cast()), None);
        assert_eq!(image_text(c"not ptx".as_ptr().cast()), None);
        assert!(image_text(c"// head\n.version 8.0".as_ptr().cast()).is_some());
    }

    #[test]
    fn occupancy_is_bounded_by_threads_blocks_and_shared_memory() {
        assert_eq!(blocks_per_multiprocessor(1024, 0), Ok(2));
        assert_eq!(blocks_per_multiprocessor(32, 0), Ok(32));
        assert_eq!(blocks_per_multiprocessor(256, 100_000), Ok(2));
        assert_eq!(blocks_per_multiprocessor(0, 0), Err(Error::INVALID_VALUE));
        assert_eq!(blocks_per_multiprocessor(1025, 0), Err(Error::INVALID_VALUE));
    }
}
