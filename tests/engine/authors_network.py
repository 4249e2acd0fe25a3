"""The authors' network in plain torch, under the names of their checkpoints; dropout is left to the tests."""

import torch
import torch.nn.functional as F
import torchvision
from torch import nn


def block(inputs, outputs, kernel, dilation=1):
    padding = dilation * (kernel // 2)
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=padding, dilation=dilation, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


class Pooled(nn.Sequential):
    def forward(self, x):
        return super().forward(x).expand(-1, -1, *x.shape[2:])


class AuthorsNetwork(nn.Module):
    """A ResNet of stride 16 with multi-grid, ASPP, decoder and classifier: `features` and `logits` at image size."""

    def __init__(self, classes, channels=256, resnet="resnet101", rates=(6, 12, 18)):
        super().__init__()
        self.backbone = getattr(torchvision.models, resnet)(weights=None)
        del self.backbone.fc
        last = self.backbone.layer4
        for unit, dilation in zip(last, (2, 4, 8), strict=True):
            unit.conv2.stride, unit.conv2.dilation, unit.conv2.padding = (1, 1), (dilation,) * 2, (dilation,) * 2
        last[0].downsample[0].stride = (1, 1)
        self.aspp, self.decoder = nn.Module(), nn.Module()
        branches = [block(2048, channels, 1), *(block(2048, channels, 3, rate) for rate in rates)]
        branches.append(Pooled(nn.AdaptiveAvgPool2d(1), *block(2048, channels, 1)))
        self.aspp.convs, self.aspp.project = nn.ModuleList(branches), block(5 * channels, channels, 1)
        self.decoder.project = block(256, 48, 1)
        first, second = block(48 + channels, channels, 3), block(channels, channels, 3)
        self.decoder.last_conv = nn.Sequential(*first, nn.Identity(), *second)
        self.decoder.pred_conv = nn.Conv2d(channels, classes, 1)

    def features(self, pictures):
        net = self.backbone
        fine = net.layer1(net.maxpool(net.relu(net.bn1(net.conv1(pictures)))))
        coarse = net.layer4(net.layer3(net.layer2(fine)))
        coarse = self.aspp.project(torch.cat([branch(coarse) for branch in self.aspp.convs], dim=1))
        fine = self.decoder.project(fine)
        coarse = F.interpolate(coarse, fine.shape[2:], mode="bilinear", align_corners=True)
        return self.decoder.last_conv(torch.cat([coarse, fine], dim=1))

    def logits(self, pictures, features):
        return F.interpolate(self.decoder.pred_conv(features), pictures.shape[2:], mode="bilinear", align_corners=True)


class AuthorsSemantic(nn.Module):
    def __init__(self, dimension, channels):
        super().__init__()
        self.model = nn.Linear(dimension, channels)
