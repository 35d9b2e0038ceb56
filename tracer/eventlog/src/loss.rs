//! Why events can be missing from a log. The counters live in the file header and are true at any moment,
//! also after a SIGKILL and on a full disk: they need no new space.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $index:literal, $text:literal;)*) => {
        /// Why events are missing. The number is the counter's place in the file header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum LossReason { $($(#[$doc])* $name = $index),* }

        impl LossReason {
            pub const ALL: &[LossReason] = &[$(LossReason::$name),*];

            /// A sentence part for reports: "12 events lost: {text}".
            pub fn text(self) -> &'static str {
                match self { $(LossReason::$name => $text),* }
            }
        }
    };
}

reasons! {
    /// The file system had no room (ENOSPC, EDQUOT).
    DiskFull = 0, "the disk holding the trace was full";
    /// The process' own limit on file sizes (RLIMIT_FSIZE); growing further would have raised SIGXFSZ.
    FileSizeLimit = 1, "the program's file size limit (ulimit -f) was reached";
    /// The limit that the tracer itself set.
    MaxBytes = 2, "the trace reached its size limit";
    /// Another error while growing the file.
    Io = 3, "the trace file could not be grown";
    /// The program closed the tracer's file descriptor and the file could not be opened again.
    FileClosed = 4, "the program closed the trace file";
    /// Written after the log was sealed, typically by threads that outlive `exit`.
    AfterSeal = 5, "they came after the end of the program";
    /// Text, a stack or a line table was too long for one record and was cut; the event itself is there.
    Truncated = 6, "a text or stack was too long and was cut";
    /// CUPTI had no buffer left for activity records (`cuptiActivityGetNumDroppedRecords`).
    CuptiDropped = 7, "CUPTI dropped activity records";
    /// The tracer was entered again on a thread that was already inside it (signal handler).
    Reentered = 8, "the tracer was interrupted by itself";
    /// The tracer could not make sense of what CUPTI or NVTX handed over.
    Unreadable = 9, "CUPTI or NVTX data could not be read";
    /// Anything else that the tracer gave up on.
    Tracer = 10, "the tracer could not record them";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter_in_the_header() {
        for (index, reason) in LossReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            assert!(index < crate::format::LOSS_SLOTS);
        }
    }
}
