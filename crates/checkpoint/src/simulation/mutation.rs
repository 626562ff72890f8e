//! Faults in the program that the simulation must notice.

/// A mistake in a standby, or in what the coordinator takes from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// It answers that parts are stored, and stores them afterwards.
    AnswersBeforeItIsStored,
    /// Of what was added to a checkpoint since it saw one, it applies the last increment only.
    SkipsAGap,
    /// It resumes from what it holds, whatever checkpoint its claim has found.
    ResumesFromWhatItHolds,
    /// It applies an increment when it stores it, and not when its checkpoint is stored.
    AppliesBeforeItIsStored,
    /// It names a base by the checkpoint whose state it is, and not by the one to come.
    NamesABaseByItsState,
    /// It makes a base of what it holds for any incarnation whose barrier has the same number.
    MixesIncarnations,
    /// The coordinator takes a base of any barrier.
    TakesAnyBase,
}

/// Those that some of the seeds of an ordinary test notice.
pub const FREQUENT: [Mutation; 6] = [
    Mutation::AnswersBeforeItIsStored,
    Mutation::SkipsAGap,
    Mutation::ResumesFromWhatItHolds,
    Mutation::AppliesBeforeItIsStored,
    Mutation::NamesABaseByItsState,
    Mutation::TakesAnyBase,
];

/// Those that take many seeds: a standby must miss all checkpoints of an incarnation up to the barrier at
/// which the one before it ended.
pub const RARE: [Mutation; 1] = [Mutation::MixesIncarnations];
