//! The data: 1,797 handwritten digits of 8 x 8 pixels (UCI "Optical Recognition of Handwritten Digits").

use smartcore::dataset::digits;

/// Pixels of a sample.
pub(crate) const FEATURES: usize = 64;
/// Digits to tell apart.
pub(crate) const CLASSES: usize = 10;
/// The samples to train on; the others measure the accuracy.
const TRAINING_SAMPLES: usize = 1_440;
/// The largest value of a pixel in the data set.
const PIXEL_MAX: f32 = 16.0;

/// Samples with their labels.
#[derive(Debug)]
pub(crate) struct Samples {
    /// Pixels in 0..=1, [`FEATURES`] a sample.
    pixels: Vec<f32>,
    /// The digit of each sample.
    labels: Vec<usize>,
}

impl Samples {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// Pixels and digit of one sample.
    pub(crate) fn sample(&self, index: usize) -> (&[f32], usize) {
        let start = index * FEATURES;
        (&self.pixels[start..start + FEATURES], self.labels[index])
    }
}

/// What to train on and what to measure with.
#[derive(Debug)]
pub(crate) struct Data {
    /// Samples the network learns from.
    pub(crate) training: Samples,
    /// Samples it never sees while learning.
    pub(crate) test: Samples,
}

impl Data {
    /// Reads the data set out of the package that ships it.
    pub(crate) fn load() -> Self {
        let set = digits::load_dataset();
        let pixels: Vec<f32> = set.data.iter().map(|pixel| pixel / PIXEL_MAX).collect();
        let labels: Vec<usize> = set.target.iter().map(|digit| *digit as usize).collect();
        let (training_pixels, test_pixels) = pixels.split_at(TRAINING_SAMPLES * FEATURES);
        let (training_labels, test_labels) = labels.split_at(TRAINING_SAMPLES);
        Self {
            training: Samples {
                pixels: training_pixels.to_vec(),
                labels: training_labels.to_vec(),
            },
            test: Samples {
                pixels: test_pixels.to_vec(),
                labels: test_labels.to_vec(),
            },
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
