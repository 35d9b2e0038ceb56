//! Names and lines for native frames, and which frames are the user's own.
//!
//! In: stacks of a trace, the executables and shared objects on this machine. Out: [`Frame`]s with inlined functions
//! expanded, innermost first, without the frames of the driver, the tracer, the C library and the language's runtime.
//! A module whose build id is not the recorded one gives no names at all: wrong lines are worse than none. Every stack
//! and every address is looked up once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use object::Object;

use crate::audit::Frame;
use crate::model::{ModuleId, NativeFrame, Problem, ProblemKind, StackId, Trace};

/// Looks up frames of one trace.
pub struct Symbols<'a> {
    trace: &'a Trace,
    roots: Vec<PathBuf>,
    modules: HashMap<ModuleId, Rc<ModuleSymbols>>,
    frames: HashMap<NativeFrame, Rc<[Frame]>>,
    native: HashMap<StackId, Rc<[Frame]>>,
    python: HashMap<StackId, Rc<[Frame]>>,
    problems: Vec<Problem>,
}

/// What is known about one module.
struct ModuleSymbols {
    /// File name, for reports.
    name: String,
    role: Role,
    loader: Option<addr2line::Loader>,
}

/// Whose code a module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Driver, tracer, emulator, C library: never shown.
    Plumbing,
    /// Frameworks and interpreters: shown, but nobody's place to fix.
    Library,
    /// Everything else.
    Program,
}

impl<'a> Symbols<'a> {
    /// Source paths are shown relative to the first of `roots` that they are in, by default the current directory.
    #[must_use]
    pub fn new(trace: &'a Trace, roots: &[PathBuf]) -> Self {
        let mut roots = roots.to_vec();
        if roots.is_empty() {
            roots.extend(std::env::current_dir().ok());
        }
        Self {
            trace,
            roots,
            modules: HashMap::new(),
            frames: HashMap::new(),
            native: HashMap::new(),
            python: HashMap::new(),
            problems: Vec::new(),
        }
    }

    /// What went wrong so far, each module once.
    #[must_use]
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// The frames of a native stack, innermost first.
    pub fn native(&mut self, id: StackId) -> Rc<[Frame]> {
        if let Some(frames) = self.native.get(&id) {
            return frames.clone();
        }
        let mut frames = Vec::new();
        for &frame in self.trace.native.get(id) {
            frames.extend_from_slice(&self.frame(frame));
        }
        // What starts a thread or `main` is the same for everybody.
        if let Some(start) = frames.iter().position(|frame| is_start(&frame.function)) {
            frames.truncate(start);
        }
        let frames: Rc<[Frame]> = frames.into();
        self.native.insert(id, frames.clone());
        frames
    }

    /// The frames of a Python stack, innermost first.
    pub fn python(&mut self, id: StackId) -> Rc<[Frame]> {
        if let Some(frames) = self.python.get(&id) {
            return frames.clone();
        }
        let frames: Rc<[Frame]> = self
            .trace
            .python
            .get(id)
            .iter()
            .map(|frame| {
                self.python_frame(self.trace.str(frame.file), frame.line, self.trace.str(frame.function))
            })
            .collect();
        self.python.insert(id, frames.clone());
        frames
    }

    /// A Python frame from its parts.
    #[must_use]
    pub fn python_frame(&self, file: &str, line: u32, function: &str) -> Frame {
        Frame {
            file: self.shorten(file),
            line,
            function: function.to_owned(),
            module: String::new(),
            path: file.to_owned(),
            user: is_user_python(file),
        }
    }

    /// A place that the program itself wrote down, as a frame of the user's. A relative path is taken to be below the
    /// source root.
    #[must_use]
    pub fn written_place(&self, file: &str, line: u32, function: &str) -> Frame {
        Frame {
            file: self.shorten(file),
            line,
            function: function.to_owned(),
            module: String::new(),
            path: self
                .roots
                .first()
                .map_or_else(|| file.into(), |root| root.join(file))
                .to_string_lossy()
                .into_owned(),
            user: true,
        }
    }

    fn frame(&mut self, frame: NativeFrame) -> Rc<[Frame]> {
        if let Some(frames) = self.frames.get(&frame) {
            return frames.clone();
        }
        let frames: Rc<[Frame]> = self.look_up(frame).into();
        self.frames.insert(frame, frames.clone());
        frames
    }

    fn look_up(&mut self, frame: NativeFrame) -> Vec<Frame> {
        // A source that gives names itself gives addresses that its own tool has used up: they lead to no line.
        let named = self.trace.str(frame.name);
        if !named.is_empty() {
            return self.named_frame(frame.module, named).into_iter().collect();
        }
        let Some(module) = self.module(frame.module) else { return Vec::new() };
        if module.role == Role::Plumbing {
            return Vec::new();
        }
        // A return address belongs to the instruction before it.
        let probe = frame.address.saturating_sub(u64::from(frame.is_return));
        let mut frames = Vec::new();
        if let Some(loader) = &module.loader
            && let Ok(mut inlined) = loader.find_frames(probe)
        {
            while let Ok(Some(found)) = inlined.next() {
                let function = found
                    .function
                    .and_then(|name| name.demangle().ok().map(|name| strip_hash(&name).to_owned()));
                let location = found.location;
                let path = location.as_ref().and_then(|at| at.file).unwrap_or_default();
                let line = location.as_ref().and_then(|at| at.line).unwrap_or(0);
                frames.push(self.native_frame(&module, path, line, function.unwrap_or_default()));
            }
        }
        if frames.iter().all(|frame| frame.function.is_empty()) {
            let symbol =
                module.loader.as_ref().and_then(|loader| loader.find_symbol(probe)).unwrap_or_default();
            let function = demangle(symbol);
            // Debug information without names of functions: the symbol is that of the outermost, not inlined one.
            let (path, line) = frames.pop().map_or((String::new(), 0), |frame| (frame.path, frame.line));
            frames.push(self.native_frame(&module, &path, line, function));
        }
        frames
    }

    /// A frame of which the source says the name of the function, and perhaps of the module.
    fn named_frame(&self, module: ModuleId, named: &str) -> Option<Frame> {
        let path = module
            .get()
            .and_then(|index| self.trace.modules.get(index))
            .map(|module| self.trace.str(module.path));
        let module = path.map_or("", |path| path.rsplit('/').next().unwrap_or(path)).to_owned();
        let role = role_of(&module);
        let function = demangle(named);
        let user = role == Role::Program && is_user_function(&function);
        (role != Role::Plumbing).then(|| Frame { function, module, user, ..Frame::default() })
    }

    fn native_frame(&self, module: &ModuleSymbols, path: &str, line: u32, function: String) -> Frame {
        let user = module.role == Role::Program && is_user_source(path) && is_user_function(&function);
        Frame {
            file: self.shorten(path),
            line,
            function,
            module: module.name.clone(),
            path: path.to_owned(),
            user,
        }
    }

    fn module(&mut self, id: ModuleId) -> Option<Rc<ModuleSymbols>> {
        let recorded = self.trace.modules.get(id.get()?)?;
        if let Some(module) = self.modules.get(&id) {
            return Some(module.clone());
        }
        let path = self.trace.str(recorded.path);
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        let role = role_of(&name);
        let loader = match role {
            Role::Plumbing => None,
            _ => match open(path, &recorded.build_id) {
                Ok(loader) => Some(loader),
                Err(why) => {
                    self.problems.push(Problem::new(
                        ProblemKind::Symbols,
                        format!("{name} has no names and lines here: {why}"),
                    ));
                    None
                }
            },
        };
        let module = Rc::new(ModuleSymbols { name, role, loader });
        self.modules.insert(id, module.clone());
        Some(module)
    }

    /// Relative to the root; else from the crate or the last folder on; never a path of the machine.
    fn shorten(&self, path: &str) -> String {
        let roots = self.roots.iter().filter(|root| !root.as_os_str().is_empty());
        if let Some(inside) = roots.filter_map(|root| Path::new(path).strip_prefix(root).ok()).next() {
            return inside.to_string_lossy().into_owned();
        }
        if !path.starts_with('/') {
            return path.to_owned();
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let source = parts.iter().rposition(|part| *part == "src" || *part == "site-packages");
        let from = match source {
            Some(at) if parts[at] == "site-packages" => at + 1,
            Some(at) => at.saturating_sub(1),
            None => parts.len().saturating_sub(2),
        };
        parts[from.min(parts.len())..].join("/")
    }
}

/// Opens a module if it is still the one that was recorded.
fn open(path: &str, build_id: &[u8]) -> Result<addr2line::Loader, String> {
    let file =
        std::fs::File::open(path).map_err(|error| format!("the file can't be opened ({})", error.kind()))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err("it is no regular file".to_owned());
    }
    if !build_id.is_empty() {
        let found = build_id_of(&file)?;
        if found.as_deref() != Some(build_id) {
            return Err(
                "the file was changed since the trace was recorded (its build id differs); record again, or \
                        restore the file"
                    .to_owned(),
            );
        }
    }
    addr2line::Loader::new(path).map_err(|error| format!("it can't be read ({error})"))
}

fn build_id_of(file: &std::fs::File) -> Result<Option<Vec<u8>>, String> {
    let cache = object::ReadCache::new(file);
    let parsed = object::File::parse(&cache).map_err(|error| format!("it is no executable ({error})"))?;
    parsed
        .build_id()
        .map(|id| id.map(<[u8]>::to_vec))
        .map_err(|error| format!("its build id can't be read ({error})"))
}

fn demangle(symbol: &str) -> String {
    let name = addr2line::demangle_auto(symbol.into(), None);
    strip_hash(&name).to_owned()
}

/// `train::step::h0123456789abcdef` -> `train::step`.
fn strip_hash(name: &str) -> &str {
    match name.rsplit_once("::h") {
        Some((head, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => head,
        _ => name,
    }
}

fn role_of(file_name: &str) -> Role {
    const PLUMBING: [&str; 17] = [
        "libcuda.so",
        "libcudart.so",
        "libcupti",
        "libnvidia-",
        "libnvToolsExt",
        "libsyncaudit_",
        "libc.so",
        "libc-",
        "ld-linux",
        "libpthread",
        "libm.so",
        "libdl.so",
        "librt.so",
        "libstdc++",
        "libgcc_s",
        "[vdso]",
        "linux-vdso",
    ];
    const LIBRARY: [&str; 13] = [
        "libtorch",
        "libc10",
        "libpython",
        "python",
        "libnccl",
        "libcublas",
        "libcudnn",
        "libcusparse",
        "libcusolver",
        "libcufft",
        "libcurand",
        "libnvrtc",
        "libamdhip",
    ];
    let starts = |list: &[&str]| list.iter().any(|prefix| file_name.starts_with(prefix));
    if starts(&PLUMBING) {
        Role::Plumbing
    } else if starts(&LIBRARY) {
        Role::Library
    } else {
        Role::Program
    }
}

/// Whether a source file is the user's: not the language's own libraries, not a fetched dependency.
fn is_user_source(path: &str) -> bool {
    ![
        "/rustc/",
        "/rustlib/",
        "/.cargo/registry/",
        "/.cargo/git/",
        "/cargo/registry/src/",
        "/cargo/git/checkouts/",
        "/usr/include/",
        "/usr/lib/",
    ]
    .iter()
    .any(|part| path.contains(part))
}

fn is_user_function(function: &str) -> bool {
    let name = function.trim_start_matches(['<', '&']);
    !function.is_empty()
        && ![
            "core::",
            "std::",
            "alloc::",
            "cudarc::",
            // Wrappers in the headers of the CUDA runtime, with their result in front as nsys writes it.
            "cudaError cuda",
            "cudaError_t cuda",
            "libloading::",
            "_start",
            "__libc_start",
            "__rust",
            "_Unwind",
            "clone",
            "start_thread",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn is_user_python(file: &str) -> bool {
    !(file.is_empty()
        || file.starts_with('<')
        || file.contains("site-packages/")
        || file.contains("dist-packages/")
        || file.contains("/lib/python")
        || file.starts_with("torch/")
        || file.contains("/importlib/"))
}

/// From here outwards a stack only says how the program or a thread was started.
fn is_start(function: &str) -> bool {
    function == "_start"
        || ["std::sys::backtrace::__rust_begin_short_backtrace", "std::rt::lang_start", "__libc_start"]
            .iter()
            .any(|prefix| function.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TraceBuilder;

    /// A stack of this very function, taken with the unwinder of the standard library.
    #[inline(never)]
    fn here() -> usize {
        let this: fn() -> usize = here;
        std::hint::black_box(this) as usize
    }

    fn frame_of(build_id: Option<Vec<u8>>) -> (Vec<Frame>, Vec<Problem>) {
        let path = std::env::current_exe().unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let build_id = build_id.unwrap_or_else(|| build_id_of(&file).unwrap().unwrap_or_default());
        // The symbol table says where `here` is in the file's own addresses.
        let data = std::fs::read(&path).unwrap();
        let parsed = object::File::parse(&*data).unwrap();
        let symbol = object::ObjectSymbol::address(
            &object::Object::symbols(&parsed)
                .find(|symbol| {
                    object::ObjectSymbol::name(symbol)
                        .is_ok_and(|name| demangle(name).ends_with("symbols::tests::here"))
                })
                .unwrap(),
        );
        let mut builder = TraceBuilder::default();
        let module = builder.module(path.to_str().unwrap(), &build_id);
        let stack = builder.native.intern(&[NativeFrame {
            module,
            address: symbol + 1,
            is_return: true,
            name: crate::model::StrId::NONE,
        }]);
        let trace = builder.finish();
        let mut symbols = Symbols::new(&trace, &[env!("CARGO_MANIFEST_DIR").into()]);
        let frames = symbols.native(stack).to_vec();
        (frames, symbols.into_problems())
    }

    #[test]
    fn a_frame_of_this_executable_gets_its_function_and_line() {
        assert_ne!(here(), 0);
        let (frames, problems) = frame_of(None);
        assert_eq!(problems, []);
        let frame = frames.last().unwrap();
        assert!(frame.function.ends_with("symbols::tests::here"), "{frame:?}");
        assert_eq!(frame.file, "src/symbols.rs");
        assert!(frame.line > 0 && frame.user, "{frame:?}");
    }

    #[test]
    fn a_module_that_changed_since_gives_no_names_and_says_why() {
        let (frames, problems) = frame_of(Some(vec![1, 2, 3]));
        assert!(frames.iter().all(|frame| frame.function.is_empty() && frame.line == 0), "{frames:?}");
        assert!(problems[0].text.contains("build id differs"), "{problems:?}");
    }

    #[test]
    fn paths_of_the_machine_are_shortened() {
        let trace = TraceBuilder::default().finish();
        let symbols = Symbols::new(&trace, &["/home/me/project".into()]);
        for (path, shown) in [
            ("/home/me/project/src/train.rs", "src/train.rs"),
            ("/home/you/project/reference/src/train.rs", "reference/src/train.rs"),
            ("/usr/lib/python3/site-packages/torch/nn/modules/module.py", "torch/nn/modules/module.py"),
            ("/data/jobs/train.py", "jobs/train.py"),
            ("train.py", "train.py"),
            ("/x", "x"),
            ("", ""),
        ] {
            assert_eq!(symbols.shorten(path), shown, "{path}");
        }
    }

    #[test]
    fn hashes_are_no_part_of_a_name() {
        assert_eq!(strip_hash("train::step::h0123456789abcdef"), "train::step");
        assert_eq!(strip_hash("train::hello"), "train::hello");
        assert_eq!(demangle("_ZN5train4step17h0123456789abcdefE"), "train::step");
    }
}
