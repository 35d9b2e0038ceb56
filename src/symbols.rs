//! Names and lines for native frames, and which frames are the user's own.
//!
//! In: stacks of a trace with the names that it brings along, the executables and shared objects on this machine. Out: [`Frame`]s with
//! inlined functions expanded, innermost first, without the frames of the driver, the tracer, the C library and the
//! language's runtime. Names in the trace go first; a module whose build id is not the recorded one gives none at all: wrong
//! lines are worse than none. Every stack and every address is looked up once.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use object::Object;

use crate::audit::Frame;
use crate::model::{
    FrameName, FrameNames, ModuleId, NativeFrame, Problem, ProblemKind, StackId, StrId, Trace,
};

/// Looks up frames of one trace.
pub struct Symbols<'a> {
    trace: &'a Trace,
    roots: Vec<PathBuf>,
    modules: Modules,
    frames: HashMap<NativeFrame, Rc<[Frame]>>,
    native: HashMap<StackId, Rc<[Frame]>>,
    python: HashMap<StackId, Rc<[Frame]>>,
}

/// Looks into the files of a trace's modules, each opened when it is first needed.
#[derive(Default)]
struct Modules {
    opened: HashMap<ModuleId, Result<addr2line::Loader, String>>,
}

/// A function at an address.
struct Name {
    function: String,
    path: String,
    line: u32,
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
            modules: Modules::default(),
            frames: HashMap::new(),
            native: HashMap::new(),
            python: HashMap::new(),
        }
    }

    /// What went wrong so far, each module once.
    #[must_use]
    pub fn into_problems(self) -> Vec<Problem> {
        let mut failed: Vec<(ModuleId, &String)> = self
            .modules
            .opened
            .iter()
            .filter_map(|(id, opened)| Some((*id, opened.as_ref().err()?)))
            .collect();
        failed.sort();
        failed
            .into_iter()
            .map(|(id, why)| {
                let name = file_name(self.trace, id);
                Problem::new(ProblemKind::Symbols, format!("{name} has no names and lines here: {why}"))
            })
            .collect()
    }

    /// Why functions of the program on a native stack have no names although there may be some: one clause per module. Empty where all that
    /// can be known of the stack is known.
    #[must_use]
    pub fn missing(&self, id: StackId) -> Vec<String> {
        let frames = self.trace.native.get(id).iter();
        let unnamed = frames.filter(|frame| {
            frame.name == StrId::NONE && !self.trace.names.contains_key(&(frame.module, frame.address))
        });
        let modules: BTreeSet<ModuleId> = unnamed.map(|frame| frame.module).collect();
        modules
            .into_iter()
            .filter(|&id| role_of(file_name(self.trace, id)) == Role::Program)
            .filter_map(|id| {
                let why = self.modules.opened.get(&id)?.as_ref().err()?;
                Some(format!("{}: {why}", file_name(self.trace, id)))
            })
            .collect()
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
        let Some(module) = frame.module.get().and_then(|index| self.trace.modules.get(index)) else {
            return Vec::new();
        };
        let module = self.trace.str(module.path).rsplit('/').next().unwrap_or_default();
        if role_of(module) == Role::Plumbing {
            return Vec::new();
        }
        if let Some(names) = self.trace.names.get(&(frame.module, frame.address)) {
            let text = |id| self.trace.str(id);
            let frame = |name: &FrameName| {
                self.native_frame(module, text(name.file), name.line, text(name.function).to_owned())
            };
            return names.iter().map(frame).collect();
        }
        let names = self.modules.names_at(self.trace, frame);
        names
            .into_iter()
            .map(|name| self.native_frame(module, &name.path, name.line, name.function))
            .collect()
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

    fn native_frame(&self, module: &str, path: &str, line: u32, function: String) -> Frame {
        let user = role_of(module) == Role::Program && is_user_source(path) && is_user_function(&function);
        Frame {
            file: self.shorten(path),
            line,
            function,
            module: module.to_owned(),
            path: path.to_owned(),
            user,
        }
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

/// Looks up all native addresses of a trace and gives it their names, so that they are those of the files as they are now, whatever becomes of
/// these. Addresses of which the names can't be had stay without.
pub fn name_all(trace: &mut Trace) {
    let mut modules = Modules::default();
    let mut names: FrameNames = std::mem::take(&mut trace.names);
    let frames: Vec<NativeFrame> = trace.native.all().to_vec();
    for frame in frames {
        let key = (frame.module, frame.address);
        let known = frame.module == ModuleId::NONE || frame.name != StrId::NONE || names.contains_key(&key);
        if known || role_of(file_name(trace, frame.module)) == Role::Plumbing {
            continue;
        }
        let found = modules.names_at(trace, frame);
        if modules.opened.get(&frame.module).is_some_and(Result::is_ok) {
            let mut intern =
                |text: &str| if text.is_empty() { StrId::NONE } else { trace.strings.intern(text) };
            let found = found.into_iter().map(|name| FrameName {
                function: intern(&name.function),
                file: intern(&name.path),
                line: name.line,
            });
            names.insert(key, found.collect());
        }
    }
    trace.names = names;
}

fn file_name(trace: &Trace, id: ModuleId) -> &str {
    let path = id.get().and_then(|index| trace.modules.get(index)).map(|module| trace.str(module.path));
    path.map_or("", |path| path.rsplit('/').next().unwrap_or(path))
}

impl Modules {
    /// What the module's file says of an address, what was inlined first; one function without a name where it says nothing.
    fn names_at(&mut self, trace: &Trace, frame: NativeFrame) -> Vec<Name> {
        let Some(recorded) = frame.module.get().and_then(|index| trace.modules.get(index)) else {
            return Vec::new();
        };
        let opened = self
            .opened
            .entry(frame.module)
            .or_insert_with(|| open(trace.str(recorded.path), &recorded.build_id));
        let loader = opened.as_ref().ok();
        // A return address belongs to the instruction before it.
        let probe = frame.address.saturating_sub(u64::from(frame.is_return));
        let mut names = Vec::new();
        if let Some(mut inlined) = loader.and_then(|loader| loader.find_frames(probe).ok()) {
            while let Ok(Some(found)) = inlined.next() {
                let function = found
                    .function
                    .and_then(|name| name.demangle().ok().map(|name| strip_hash(&name).to_owned()));
                let location = found.location.as_ref();
                names.push(Name {
                    function: function.unwrap_or_default(),
                    path: location.and_then(|at| at.file).unwrap_or_default().to_owned(),
                    line: location.and_then(|at| at.line).unwrap_or(0),
                });
            }
        }
        if names.iter().all(|name| name.function.is_empty()) {
            let symbol = loader.and_then(|loader| loader.find_symbol(probe)).unwrap_or_default();
            // Debug information without names of functions: the symbol is that of the outermost, not inlined one.
            let (path, line) = names.pop().map_or((String::new(), 0), |name| (name.path, name.line));
            names.push(Name { function: demangle(symbol), path, line });
        }
        names
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
            return Err(format!(
                "the file was changed since the trace was recorded (its build id is {}, that of the trace {}); record again, or \
                 restore the file",
                found.map_or_else(|| "none".to_owned(), |found| hex(&found)),
                hex(build_id)
            ));
        }
    }
    addr2line::Loader::new(path).map_err(|error| format!("it can't be read ({error})"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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

/// Whether a Python file is the program's own: not the standard library, an installed package, or code that a library made as it ran.
fn is_user_python(file: &str) -> bool {
    // What was typed in is the user's; `<frozen ...>`, and `<string>` as dataclasses make it, are not.
    let typed_in = file == "<stdin>" || file.starts_with("<ipython-input-");
    let standard = ["/lib/python", "/lib64/python"]
        .iter()
        .any(|folder| file.split(folder).skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit())));
    typed_in
        || !(file.is_empty()
            || file.starts_with('<')
            || file.contains("site-packages/")
            || file.contains("dist-packages/")
            || standard
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
        assert!(problems[0].text.contains("that of the trace 010203"), "{problems:?}");
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
    fn the_users_python_is_told_from_the_librarys() {
        for file in [
            "/home/me/train.py",
            "train.py",
            "/home/me/lib/python/train.py",
            "/tmp/ipykernel_7/123.py",
            "<ipython-input-1-0a>",
            "<stdin>",
        ] {
            assert!(is_user_python(file), "{file}");
        }
        for file in [
            "/usr/lib/python3.11/threading.py",
            "/usr/lib64/python3.9/threading.py",
            "/home/me/.pyenv/versions/3.12.1/lib/python3.12/asyncio/events.py",
            "/home/me/project/.venv/lib/python3.13/site-packages/torch/nn/modules/module.py",
            "/usr/lib/python3/dist-packages/numpy/__init__.py",
            "<frozen importlib._bootstrap>",
            "<string>",
            "<eval_with_key>.0",
            "",
        ] {
            assert!(!is_user_python(file), "{file}");
        }
    }

    #[test]
    fn hashes_are_no_part_of_a_name() {
        assert_eq!(strip_hash("train::step::h0123456789abcdef"), "train::step");
        assert_eq!(strip_hash("train::hello"), "train::hello");
        assert_eq!(demangle("_ZN5train4step17h0123456789abcdefE"), "train::step");
    }
}
