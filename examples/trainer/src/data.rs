//! Training data: 1,797 handwritten digits of 8 x 8 pixels (UCI "Optical Recognition of Handwritten
//! Digits").

/// One sample per line: [`FEATURES`] pixels, then the digit. Origin and licence: `data/README.md`.
const DIGITS: &str = include_str!("../data/optdigits.csv");
/// Pixels per sample.
pub(crate) const FEATURES: usize = 64;
/// Number of digits to distinguish.
pub(crate) const CLASSES: usize = 10;
/// Number of training samples; the others measure the accuracy.
const TRAINING_SAMPLES: usize = 1_440;
/// The largest value of a pixel in the data set.
const PIXEL_MAX: f32 = 16.0;

/// Samples with their labels.
#[derive(Debug)]
pub(crate) struct Samples {
    /// Pixels in 0..=1, [`FEATURES`] per sample.
    pixels: Vec<f32>,
    /// The digit of each sample.
    labels: Vec<usize>,
}

impl Samples {
    /// Parses one sample from each line.
    fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut samples = Self {
            pixels: Vec::new(),
            labels: Vec::new(),
        };
        for line in lines {
            let mut fields = line.split(',').map(|field| {
                field
                    .parse::<u8>()
                    .expect("the data set is part of the program and holds small integers")
            });
            let pixels = fields.by_ref().take(FEATURES);
            samples
                .pixels
                .extend(pixels.map(|pixel| f32::from(pixel) / PIXEL_MAX));
            samples.labels.extend(fields.map(usize::from));
        }
        samples
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// Pixels and digit of one sample.
    pub(crate) fn sample(&self, index: usize) -> (&[f32], usize) {
        let start = index * FEATURES;
        (&self.pixels[start..start + FEATURES], self.labels[index])
    }
}

/// Training and test samples.
#[derive(Debug)]
pub(crate) struct Data {
    /// Samples to train on.
    pub(crate) training: Samples,
    /// Samples that are never used in training.
    pub(crate) test: Samples,
}

impl Data {
    /// Parses the data set that is compiled in.
    pub(crate) fn load() -> Self {
        let (training, test): (Vec<_>, Vec<_>) = DIGITS
            .lines()
            .enumerate()
            .partition(|(index, _)| *index < TRAINING_SAMPLES);
        Self {
            training: Samples::parse(training.iter().map(|(_, line)| *line)),
            test: Samples::parse(test.iter().map(|(_, line)| *line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_is_in_both_parts_and_every_pixel_in_range() {
        let data = Data::load();
        assert_eq!(data.training.len() + data.test.len(), 1_797);
        for part in [&data.training, &data.test] {
            assert_eq!(part.pixels.len(), part.len() * FEATURES);
            let mut seen = [false; CLASSES];
            for index in 0..part.len() {
                let (pixels, digit) = part.sample(index);
                assert!(pixels.iter().all(|pixel| (0.0..=1.0).contains(pixel)));
                seen[digit] = true;
            }
            assert_eq!(seen, [true; CLASSES]);
        }
    }
}
